import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.connect.mirror.MirrorMaker;

/**
 * MirrorMaker, which copies topics to the broker TARGET under other names; prints the first COUNT records of the copies,
 * with the offsets there: BOOTSTRAP TOPICS ISOLATION GROUP COUNT TARGET.
 */
public final class MirrorReader {
    private static final Duration LIMIT = Duration.ofSeconds(500);

    private MirrorReader() { }

    public static void main(String[] arguments) throws Exception {
        String from = arguments[3] + "-" + arguments[0].substring(arguments[0].lastIndexOf(':') + 1);
        String pair = from + "->copy.";
        Path properties = Files.write(Files.createTempDirectory("mirror").resolve("mirror.properties"), List.of(
            "clusters=" + from + ",copy", from + ".bootstrap.servers=" + arguments[0], "copy.bootstrap.servers=" + arguments[5],
            pair + "enabled=true", pair + "topics=" + arguments[1], from + ".consumer.isolation.level=" + arguments[2],
            "offset-syncs.topic.location=target", "sync.topic.acls.enabled=false", "sync.topic.configs.enabled=false",
            "emit.heartbeats.enabled=false", "emit.checkpoints.enabled=false", "replication.factor=1",
            "offset-syncs.topic.replication.factor=1", "checkpoints.topic.replication.factor=1", "heartbeats.topic.replication.factor=1",
            "offset.storage.replication.factor=1", "status.storage.replication.factor=1", "config.storage.replication.factor=1"));
        Thread mirror = new Thread(() -> MirrorMaker.main(new String[] {properties.toString()}));
        mirror.start();
        int count = Integer.parseInt(arguments[4]);
        List<String> lines = copies(arguments[5], from + ".", arguments[1].split(","), count);
        lines.forEach(System.out::println);
        System.out.flush();
        if (lines.size() < count) System.err.println(lines.size() + " of " + count + " records came");
        Runtime.getRuntime().halt(lines.size() < count ? 1 : 0);
    }

    private static List<String> copies(String target, String prefix, String[] topics, int count) throws InterruptedException {
        List<String> lines = new ArrayList<>();
        long deadline = System.nanoTime() + LIMIT.toNanos();
        Map<String, Object> settings = Map.of("bootstrap.servers", target, "auto.offset.reset", "earliest");
        try (KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> assigned = List.of();
            while (lines.size() < count && System.nanoTime() < deadline) {
                if (assigned.isEmpty()) {
                    Thread.sleep(200);
                    assigned = partitions(consumer, prefix, topics);
                    consumer.assign(assigned);
                    continue;
                }
                for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofMillis(200))) {
                    lines.add(Rows.shown(each.topic().substring(prefix.length()), each.partition(), each.offset(), each.timestamp(), each.key(), each.value(), each.headers()));
                }
            }
        }
        return lines;
    }

    /** The partitions of all copies; none until each topic is there. */
    private static List<TopicPartition> partitions(KafkaConsumer<byte[], byte[]> consumer, String prefix, String[] topics) {
        Map<String, List<PartitionInfo>> there = consumer.listTopics();
        List<TopicPartition> found = new ArrayList<>();
        for (String topic : topics) {
            if (!there.containsKey(prefix + topic)) return List.of();
            for (PartitionInfo each : there.get(prefix + topic)) found.add(new TopicPartition(each.topic(), each.partition()));
        }
        return found;
    }
}
