import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Reads COUNT records as a member of a group, commits them, and prints each: PROTOCOL BOOTSTRAP TOPICS ISOLATION GROUP COUNT. */
public final class Reader {
    public static void main(String[] arguments) {
        Map<String, Object> settings = new HashMap<>(Map.of(
            "group.protocol", arguments[0], "bootstrap.servers", arguments[1], "isolation.level", arguments[3],
            "group.id", arguments[4], "auto.offset.reset", "earliest", "enable.auto.commit", "false"));
        int left = Integer.parseInt(arguments[5]);
        Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
        StringBuilder lines = new StringBuilder();
        long deadline = System.nanoTime() + Duration.ofSeconds(500).toNanos();
        try (KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(arguments[2].split(",")));
            while (left > 0 && System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                    if (left-- <= 0) break;
                    lines.append(Rows.shown(record)).append('\n');
                    ends.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
                }
            }
            consumer.commitSync(ends);
        }
        System.out.print(lines);
        if (left > 0) throw new IllegalStateException(left + " records did not come");
    }
}
