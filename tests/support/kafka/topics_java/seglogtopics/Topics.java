package seglogtopics;

import java.time.Duration;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.mirror.DefaultReplicationPolicy;
import org.apache.kafka.connect.mirror.MirrorBytes;
import org.apache.kafka.connect.storage.KafkaConfigBackingStore;
import org.apache.kafka.connect.util.ConnectorTaskId;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TestOutputTopic;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.test.TestRecord;

/** Prints records of internal topics as Kafka's own classes write them: topic, key and value in base64, timestamp. */
public final class Topics {
    private static final long START = 1_700_000_000_000L;

    private Topics() {}

    public static void main(String[] arguments) {
        mirror();
        connect();
        streams();
    }

    private static void print(String topic, byte[] key, byte[] value, long timestamp) {
        System.out.println(String.join("\t", topic, text(key), text(value), Long.toString(timestamp)));
    }

    private static String text(byte[] bytes) {
        return bytes == null ? "-" : Base64.getEncoder().encodeToString(bytes);
    }

    private static void mirror() {
        DefaultReplicationPolicy policy = new DefaultReplicationPolicy();
        MirrorBytes.offsetSync((key, value) -> print(policy.offsetSyncsTopic("old"), key, value, START), "orders", 3, 1L << 40, 17);
        MirrorBytes.checkpoint(
            (key, value) -> print(policy.checkpointsTopic("old"), key, value, START), "grüße", "old.orders", 3, 41, 29, "m");
        MirrorBytes.heartbeat((key, value) -> print(policy.heartbeatsTopic(), key, value, START), "old", "new", START);
        MirrorBytes.heartbeat(
            (key, value) -> print(policy.formatRemoteTopic("old", policy.heartbeatsTopic()), key, value, START), "a", "old", 0);
    }

    private static void connect() {
        JsonConverter converter = new JsonConverter();
        converter.configure(Map.of("schemas.enable", "false"), false);
        String configs = "connect-configs";
        Map<String, String> settings = new TreeMap<>(Map.of("name", "a-sink", "topics", "orders", "db.password", "hush"));
        settings.put("nothing", null);
        Struct connector = new Struct(KafkaConfigBackingStore.CONNECTOR_CONFIGURATION_V0).put("properties", settings);
        Struct task = new Struct(KafkaConfigBackingStore.TASK_CONFIGURATION_V0).put("properties", Map.of("task.class", "T"));
        write(converter, configs, KafkaConfigBackingStore.CONNECTOR_KEY("a-sink"), connector);
        write(converter, configs, KafkaConfigBackingStore.TASK_KEY(new ConnectorTaskId("a-sink", 1)), task);
        write(converter, configs, KafkaConfigBackingStore.COMMIT_TASKS_KEY("a-sink"),
            new Struct(KafkaConfigBackingStore.CONNECTOR_TASKS_COMMIT_V0).put("tasks", 2));
        write(converter, configs, KafkaConfigBackingStore.TARGET_STATE_KEY("a-sink"),
            new Struct(KafkaConfigBackingStore.TARGET_STATE_V1).put("state", "PAUSED").put("state.v2", "STOPPED"));
        write(converter, configs, KafkaConfigBackingStore.TASK_COUNT_RECORD_KEY("a-sink"),
            new Struct(KafkaConfigBackingStore.TASK_COUNT_RECORD_V0).put("task-count", 2));
        write(converter, configs, KafkaConfigBackingStore.RESTART_KEY("a-sink"),
            new Struct(KafkaConfigBackingStore.RESTART_REQUEST_V0).put("include-tasks", true).put("only-failed", false));
        write(converter, configs, KafkaConfigBackingStore.LOGGER_CLUSTER_KEY("org.apache"),
            new Struct(KafkaConfigBackingStore.LOGGER_LEVEL_V0).put("level", "DEBUG"));
        write(converter, configs, KafkaConfigBackingStore.SESSION_KEY_KEY,
            new Struct(KafkaConfigBackingStore.SESSION_KEY_V0)
                .put("key", "c2VjcmV0").put("algorithm", "HmacSHA256").put("creation-timestamp", START));
        Map<String, Object> partition = Map.of("filename", "in.txt");
        byte[] key = converter.fromConnectData("connect-offsets", null, Arrays.asList("a-source", partition));
        print("connect-offsets", key, converter.fromConnectData("connect-offsets", null, Map.of("position", 1L << 60)), START);
        print("connect-offsets", key, null, START);
    }

    private static void write(JsonConverter converter, String topic, String key, Struct value) {
        print(topic, new StringSerializer().serialize(topic, key), converter.fromConnectData(topic, value.schema(), value), START);
    }

    private static void streams() {
        StreamsBuilder builder = new StreamsBuilder();
        Consumed<String, String> texts = Consumed.with(Serdes.String(), Serdes.String());
        Grouped<String, String> grouped = Grouped.with(Serdes.String(), Serdes.String());
        KStream<String, String> left = builder.stream("left", texts);
        KStream<String, String> right = builder.stream("right", texts);
        TimeWindows minute = TimeWindows.ofSizeWithNoGrace(Duration.ofMinutes(1));
        left.groupByKey(grouped).windowedBy(minute).count(Materialized.as("windows"))
            .toStream().to("counted", Produced.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, 60_000), Serdes.Long()));
        left.groupByKey(grouped).windowedBy(SessionWindows.ofInactivityGapWithNoGrace(Duration.ofMinutes(1)))
            .count(Materialized.as("sessions"));
        left.groupByKey(grouped).windowedBy(minute).count()
            .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded())).toStream();
        left.groupByKey(grouped).count(Materialized.as("stamped"));
        builder.table("versions", texts, Materialized.as(
            Stores.persistentVersionedKeyValueStore("versioned", Duration.ofMinutes(5))));
        left.outerJoin(right, (one, other) -> one + other, JoinWindows.ofTimeDifferenceWithNoGrace(Duration.ofSeconds(9)),
            StreamJoined.with(Serdes.String(), Serdes.String(), Serdes.String()));
        left.join(right, (one, other) -> one + other, JoinWindows.ofTimeDifferenceWithNoGrace(Duration.ofSeconds(9)),
            StreamJoined.with(Serdes.String(), Serdes.String(), Serdes.String()).withName("named").withStoreName("named"));
        KTable<String, String> orders = builder.table("orders", texts);
        KTable<String, String> customers = builder.table("customers", texts);
        orders.join(customers, order -> order.split(" ")[0], (order, customer) -> order + customer).toStream();

        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "shop");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "none:1");
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, System.getProperty("state"));
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        try (TopologyTestDriver driver = new TopologyTestDriver(builder.build(), settings)) {
            pipe(driver, "customers", "c1", "Ann", 0);
            pipe(driver, "orders", "o1", "c1 x", 1_000);
            pipe(driver, "orders", "o1", "c2 x", 2_000);
            pipe(driver, "versions", "v", "one", 3_000);
            pipe(driver, "left", "k", "a", 4_000);
            pipe(driver, "left", "k", "b", 4_000);
            pipe(driver, "right", "q", "c", 5_000);
            for (String topic : driver.producedTopicNames().stream().sorted().toList()) {
                TestOutputTopic<byte[], byte[]> output =
                    driver.createOutputTopic(topic, new ByteArrayDeserializer(), new ByteArrayDeserializer());
                for (TestRecord<byte[], byte[]> one : output.readRecordsToList()) {
                    Long timestamp = one.timestamp();
                    print(topic, one.key(), one.value(), timestamp == null ? -1 : timestamp);
                }
            }
        }
    }

    private static void pipe(TopologyTestDriver driver, String topic, String key, String value, long later) {
        TestInputTopic<String, String> input =
            driver.createInputTopic(topic, new StringSerializer(), new StringSerializer());
        input.pipeInput(key, value, START + later);
    }
}
