package seglogkafka;

import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;

import java.nio.charset.StandardCharsets;
import java.util.Random;

/** Keys, values and headers of generated records: the same for the same seed. Every value of 17 bytes or more names its record. */
final class Payloads {
    private static final String[] WORDS = ("paid refused shipped order parcel invoice customer street harbour copper amber winter "
        + "seven twelve northern quiet the of and to in by for Oslo Lima Accra Kyoto Paris returned delayed open closed").split(" ");

    private final Random random;
    private final String keyDistribution, valueKind;
    private final int keySpace, keySize, valueSize, valueSizeJitter;
    private final double nullKeyRatio, nullValueRatio;
    private long made;

    Payloads(Options options, Random random) {
        this.random = random;
        keyDistribution = options.text("key_dist", "uniform");
        valueKind = options.text("value_kind", "text");
        keySpace = options.integer("key_space", 1000);
        keySize = options.integer("key_size", 16);
        valueSize = options.integer("value_size", 100);
        valueSizeJitter = options.integer("value_size_jitter", 0);
        nullKeyRatio = options.ratio("null_key_ratio", 0);
        nullValueRatio = options.ratio("null_value_ratio", 0);
    }

    byte[] key() {
        if (random.nextDouble() < nullKeyRatio) return null;
        long number = switch (keyDistribution) {
            case "uniform" -> random.nextInt(keySpace);
            case "zipf" -> (long) (keySpace * Math.pow(random.nextDouble(), 4));
            case "seq" -> made % keySpace;
            default -> throw new Options.Refused("key_dist is uniform, zipf or seq");
        };
        String digits = Long.toString(number);
        int room = keySize - digits.length();
        if (room < 0) throw new Options.Refused("key_size is too small for key_space");
        String prefix = room >= 4 ? "key-" : "";
        return (prefix + "0".repeat(room - prefix.length()) + digits).getBytes(StandardCharsets.US_ASCII);
    }

    byte[] value() {
        long number = made++;
        if (random.nextDouble() < nullValueRatio) return null;
        int size = Math.max(0, valueSize + (valueSizeJitter > 0 ? random.nextInt(2 * valueSizeJitter + 1) - valueSizeJitter : 0));
        byte[] value = new byte[size];
        byte[] name = String.format("%016x ", number).getBytes(StandardCharsets.US_ASCII);
        int start = size < name.length ? 0 : name.length;
        switch (valueKind) {
            case "text" -> text(value, start);
            case "random" -> random.nextBytes(value);
            case "zero" -> { }
            default -> throw new Options.Refused("value_kind is text, random or zero");
        }
        System.arraycopy(name, 0, value, 0, start);
        return value;
    }

    private void text(byte[] value, int start) {
        for (int at = start; at < value.length; ) {
            byte[] word = (WORDS[(int) (WORDS.length * Math.pow(random.nextDouble(), 2))] + " ").getBytes(StandardCharsets.US_ASCII);
            int length = Math.min(word.length, value.length - at);
            System.arraycopy(word, 0, value, at, length);
            at += length;
        }
    }

    Header[] headers() {
        Header[] headers = new Header[random.nextInt(4)];
        for (int i = 0; i < headers.length; i++) {
            byte[] value = random.nextInt(6) == 0 ? null : ("value " + random.nextInt(1000)).getBytes(StandardCharsets.UTF_8);
            headers[i] = new RecordHeader(random.nextInt(9) == 0 ? "größe" : "header" + random.nextInt(4), value);
        }
        return headers;
    }
}
