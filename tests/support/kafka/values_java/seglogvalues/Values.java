package seglogvalues;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.google.protobuf.DescriptorProtos.FileDescriptorProto;
import com.google.protobuf.DescriptorProtos.FileDescriptorSet;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.DynamicMessage;
import com.google.protobuf.util.JsonFormat;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.avro.Conversions;
import org.apache.avro.Schema;
import org.apache.avro.SchemaNormalization;
import org.apache.avro.data.TimeConversions;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericFixed;
import org.apache.avro.generic.IndexedRecord;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.util.TimePeriod;

/**
 * Decodes values with Java's own libraries: a line of standard input for each, a line of JSON for its value, or
 * "error: ..." if the library refuses it.
 *
 * <p>"avro SCHEMA VALUE", "fingerprint SCHEMA" (both: text in base64) or "protobuf DESCRIPTORS MESSAGE VALUE".
 */
public final class Values {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final GenericData DATA = new GenericData();
    private static final Map<String, Schema> SCHEMAS = new HashMap<>();
    private static final Map<String, Map<String, Descriptor>> MESSAGES = new HashMap<>();

    static {
        DATA.addLogicalTypeConversion(new Conversions.DecimalConversion());
        DATA.addLogicalTypeConversion(new Conversions.BigDecimalConversion());
        DATA.addLogicalTypeConversion(new Conversions.UUIDConversion());
        DATA.addLogicalTypeConversion(new Conversions.DurationConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.DateConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.TimeMillisConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.TimeMicrosConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.TimestampMillisConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.TimestampMicrosConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.TimestampNanosConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.LocalTimestampMillisConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.LocalTimestampMicrosConversion());
        DATA.addLogicalTypeConversion(new TimeConversions.LocalTimestampNanosConversion());
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ", -1);
            String shown;
            try {
                shown = switch (words[0]) {
                    case "avro" -> avro(words[1], bytes(words[2]));
                    case "fingerprint" -> Long.toUnsignedString(
                            SchemaNormalization.parsingFingerprint64(schema(words[1])));
                    default -> protobuf(words[1], words[2], bytes(words[3]));
                };
            } catch (Exception | StackOverflowError error) {
                shown = "error: " + error.toString().replace("\n", " ");
            }
            out.println(shown);
        }
        out.flush();
    }

    private static byte[] bytes(String text) {
        return Base64.getDecoder().decode(text);
    }

    private static Schema schema(String text) {
        return SCHEMAS.computeIfAbsent(
                text, one -> new Schema.Parser().parse(new String(bytes(one), StandardCharsets.UTF_8)));
    }

    private static String avro(String text, byte[] value) throws Exception {
        BinaryDecoder decoder = DecoderFactory.get().binaryDecoder(value, null);
        Object datum = new GenericDatumReader<>(schema(text), schema(text), DATA).read(null, decoder);
        return decoder.isEnd() ? JSON.writeValueAsString(plain(datum)) : "error: bytes follow";
    }

    private static Object plain(Object value) {
        if (value instanceof IndexedRecord record) {
            Map<String, Object> fields = new LinkedHashMap<>();
            record.getSchema().getFields().forEach(one -> fields.put(one.name(), plain(record.get(one.pos()))));
            return fields;
        }
        if (value instanceof Map<?, ?> map) {
            Map<String, Object> entries = new LinkedHashMap<>();
            map.forEach((key, one) -> entries.put(key.toString(), plain(one)));
            return entries;
        }
        if (value instanceof List<?> list) {
            List<Object> items = new ArrayList<>();
            list.forEach(one -> items.add(plain(one)));
            return items;
        }
        if (value instanceof GenericFixed fixed) {
            return new String(fixed.bytes(), StandardCharsets.ISO_8859_1);
        }
        if (value instanceof ByteBuffer buffer) {
            return StandardCharsets.ISO_8859_1.decode(buffer.duplicate()).toString();
        }
        if (value instanceof TimePeriod period) {
            return String.format("P%dM%dDT%d.%03dS", period.getMonths(), period.getDays(),
                    period.getMillis() / 1000, period.getMillis() % 1000);
        }
        if (value instanceof LocalTime || value instanceof LocalDateTime) {
            DateTimeFormatter form =
                    value instanceof LocalTime ? DateTimeFormatter.ISO_LOCAL_TIME : DateTimeFormatter.ISO_LOCAL_DATE_TIME;
            return form.format((java.time.temporal.TemporalAccessor) value);
        }
        if (value instanceof BigDecimal decimal) {
            return Math.abs(decimal.scale()) <= 4096 ? decimal.toPlainString() : decimal.toString();
        }
        if (value instanceof Float || value instanceof Double) {
            double number = ((Number) value).doubleValue();
            return Double.isFinite(number) ? (Object) number : Double.toString(number);
        }
        return value == null || value instanceof Boolean || value instanceof Number ? value : value.toString();
    }

    private static String protobuf(String descriptors, String name, byte[] value) throws Exception {
        Map<String, Descriptor> known = MESSAGES.get(descriptors);
        if (known == null) {
            known = new LinkedHashMap<>();
            Map<String, FileDescriptor> files = new HashMap<>();
            for (FileDescriptorProto file : FileDescriptorSet.parseFrom(bytes(descriptors)).getFileList()) {
                FileDescriptor[] needed =
                        file.getDependencyList().stream().map(files::get).toArray(FileDescriptor[]::new);
                FileDescriptor made = FileDescriptor.buildFrom(file, needed);
                files.put(file.getName(), made);
                for (Descriptor one : made.getMessageTypes()) {
                    known.put(one.getFullName(), one);
                }
            }
            MESSAGES.put(descriptors, known);
        }
        JsonFormat.TypeRegistry types = JsonFormat.TypeRegistry.newBuilder().add(known.values()).build();
        return JsonFormat.printer().usingTypeRegistry(types).preservingProtoFieldNames()
                .alwaysPrintFieldsWithNoPresence().omittingInsignificantWhitespace()
                .print(DynamicMessage.parseFrom(known.get(name), value));
    }

    private Values() {}
}
