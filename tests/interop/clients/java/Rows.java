import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.StringJoiner;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.header.Header;

/** A record as the line of JSON that the matrix compares. */
final class Rows {
    private Rows() { }

    static String shown(ConsumerRecord<byte[], byte[]> record) {
        return shown(record.topic(), record.partition(), record.offset(), record.timestamp(), record.key(), record.value(), record.headers());
    }

    static String shown(String topic, int partition, long offset, long timestamp, byte[] key, byte[] value, Iterable<Header> headers) {
        StringJoiner pairs = new StringJoiner(",", "[", "]");
        headers.forEach(each -> pairs.add("[" + quoted(each.key()) + "," + encoded(each.value()) + "]"));
        return "[" + quoted(topic) + "," + partition + "," + offset + "," + timestamp + "," + encoded(key) + "," + encoded(value) + "," + pairs + "]";
    }

    /** Names of the tests' topics and headers are letters, digits, points and hyphens. */
    private static String quoted(String text) { return '"' + text + '"'; }

    private static String encoded(byte[] data) {
        return data == null ? "null" : '"' + new String(Base64.getEncoder().encode(data), StandardCharsets.US_ASCII) + '"';
    }
}
