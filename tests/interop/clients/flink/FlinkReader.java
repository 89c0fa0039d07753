import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;

import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetResetStrategy;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A local job of Flink, which reads the next COUNT records, commits them with a checkpoint, and prints each:
 * BOOTSTRAP TOPICS ISOLATION GROUP COUNT. Its source stops at given offsets: a plain consumer says where these are.
 */
public final class FlinkReader {
    private static final Queue<String> LINES = new ConcurrentLinkedQueue<>();
    private static final Map<TopicPartition, Long> ENDS = new HashMap<>();  // of what came, by partition
    private static final Duration LIMIT = Duration.ofSeconds(500);

    private FlinkReader() { }

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0], group = arguments[3];
        List<String> topics = List.of(arguments[1].split(","));
        int count = Integer.parseInt(arguments[4]);
        long deadline = System.nanoTime() + LIMIT.toNanos();
        boolean done = false;
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            Map<TopicPartition, Long> stops = stops(bootstrap, topics, arguments[2], commits(admin, group), count);
            KafkaSource<String> source = KafkaSource.<String>builder().setBootstrapServers(bootstrap).setTopics(topics).setGroupId(group)
                .setStartingOffsets(OffsetsInitializer.committedOffsets(OffsetResetStrategy.EARLIEST))
                .setUnbounded(OffsetsInitializer.offsets(stops)).setProperty("isolation.level", arguments[2])
                .setDeserializer(new Showing()).build();
            StreamExecutionEnvironment environment = StreamExecutionEnvironment.createLocalEnvironment(2);
            environment.enableCheckpointing(200);
            environment.fromSource(source, WatermarkStrategy.noWatermarks(), "topics").sinkTo(new DiscardingSink<>());
            JobClient job = environment.executeAsync();
            while (!done && System.nanoTime() < deadline && !job.getJobStatus().get().isGloballyTerminalState()) {
                Thread.sleep(100);
                done = LINES.size() >= count && isCommitted(commits(admin, group));
            }
            if (done) job.cancel().get();
        }
        LINES.forEach(System.out::println);
        System.out.flush();
        if (!done) System.err.println(LINES.size() + " of " + count + " records came and were committed");
        Runtime.getRuntime().halt(done ? 0 : 1);
    }

    private static Map<TopicPartition, OffsetAndMetadata> commits(Admin admin, String group) throws Exception {
        return admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
    }

    private static boolean isCommitted(Map<TopicPartition, OffsetAndMetadata> commits) {
        synchronized (ENDS) {
            return ENDS.entrySet().stream().allMatch(each -> {
                OffsetAndMetadata commit = commits.get(each.getKey());
                return commit != null && commit.offset() >= each.getValue();
            });
        }
    }

    /** Where the next records of a plain consumer end that begins at the commits. */
    private static Map<TopicPartition, Long> stops(String bootstrap, List<String> topics, String isolation,
            Map<TopicPartition, OffsetAndMetadata> commits, int count) {
        Map<TopicPartition, Long> stops = new HashMap<>();
        int left = count;
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                Map.of("bootstrap.servers", bootstrap, "isolation.level", isolation, "auto.offset.reset", "earliest"),
                new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            for (String topic : topics) {
                for (PartitionInfo each : consumer.partitionsFor(topic)) stops.put(new TopicPartition(topic, each.partition()), 0L);
            }
            stops.putAll(consumer.beginningOffsets(stops.keySet()));
            commits.forEach((partition, commit) -> stops.put(partition, commit.offset()));
            consumer.assign(stops.keySet());
            stops.forEach(consumer::seek);
            for (long deadline = System.nanoTime() + LIMIT.toNanos(); left > 0 && System.nanoTime() < deadline; ) {
                for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofMillis(200))) {
                    if (left-- > 0) stops.put(new TopicPartition(each.topic(), each.partition()), each.offset() + 1);
                }
            }
        }
        return stops;
    }

    private static final class Showing implements KafkaRecordDeserializationSchema<String> {
        @Override public void deserialize(ConsumerRecord<byte[], byte[]> record, Collector<String> out) {
            String line = Rows.shown(record);
            synchronized (ENDS) { ENDS.put(new TopicPartition(record.topic(), record.partition()), record.offset() + 1); }
            LINES.add(line);
            out.collect(line);
        }

        @Override public TypeInformation<String> getProducedType() { return Types.STRING; }
    }
}
