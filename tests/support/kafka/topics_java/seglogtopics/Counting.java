package seglogtopics;

import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;

/**
 * A Streams application with exactly-once semantics: BOOTSTRAP TOPIC PROTOCOL SUM. It counts the records of a topic by
 * their value, and prints the counts when their sum is SUM or more; it stays until it is killed.
 */
public final class Counting {
    private static final int LIMIT_SECONDS = 900;

    private Counting() {}

    public static void main(String[] arguments) throws Exception {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(arguments[1], Consumed.with(Serdes.String(), Serdes.String()))
            .groupBy((key, value) -> value, Grouped.with("by-value", Serdes.String(), Serdes.String()))
            .count(Materialized.as("counts"));
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "counting");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, System.getProperty("state"));
        settings.put("group.protocol", arguments[2]);
        if (arguments[2].equals("classic")) {  // else the broker's own count
            settings.put("session.timeout.ms", System.getProperty("session"));
            settings.put("heartbeat.interval.ms", "1000");
        }
        settings.put("auto.offset.reset", "earliest");
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.start();
        long sum = Long.parseLong(arguments[3]);
        for (int i = 0; i < LIMIT_SECONDS * 10; i++) {
            Map<String, Long> counts = counts(streams);
            if (counts.values().stream().mapToLong(Long::longValue).sum() >= sum) {
                Thread.sleep(Duration.ofSeconds(1).toMillis());  // until what it has read is committed
                System.out.println(counts(streams));
                while (System.in.read() >= 0) { }
                Runtime.getRuntime().halt(0);
            }
            Thread.sleep(100);
        }
        throw new IllegalStateException("the counts are " + counts(streams));
    }

    private static Map<String, Long> counts(KafkaStreams streams) {
        Map<String, Long> counts = new TreeMap<>();
        try {
            ReadOnlyKeyValueStore<String, Long> store =
                streams.store(StoreQueryParameters.fromNameAndType("counts", QueryableStoreTypes.keyValueStore()));
            try (KeyValueIterator<String, Long> all = store.all()) {
                all.forEachRemaining(one -> counts.put(one.key, one.value));
            }
        } catch (InvalidStateStoreException error) {
            counts.clear();  // it starts, or restores
        }
        return counts;
    }
}
