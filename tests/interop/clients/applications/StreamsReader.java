import java.nio.file.Files;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Properties;

import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.processor.api.RecordMetadata;

/**
 * A Streams application that processes COUNT records or a few more, commits them, and prints each:
 * BOOTSTRAP TOPICS ISOLATION GROUP COUNT. It writes nothing: it has no state, and no topic of its own.
 */
public final class StreamsReader {
    private static final List<String> LINES = Collections.synchronizedList(new ArrayList<>());
    private static final Duration LIMIT = Duration.ofSeconds(500);

    private StreamsReader() { }

    public static void main(String[] arguments) throws Exception {
        Topology topology = new Topology();
        topology.addSource("topics", new ByteArrayDeserializer(), new ByteArrayDeserializer(), arguments[1].split(","));
        int count = Integer.parseInt(arguments[4]);
        topology.addProcessor("rows", () -> new Keeping(count), "topics");
        Properties settings = new Properties();
        settings.put("application.id", arguments[3]);
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("state.dir", Files.createTempDirectory("streams").toString());
        settings.put("auto.offset.reset", "earliest");
        settings.put("consumer.isolation.level", arguments[2]);
        long deadline = System.nanoTime() + LIMIT.toNanos();
        KafkaStreams streams = new KafkaStreams(topology, settings);
        streams.start();
        while (LINES.size() < count && System.nanoTime() < deadline && streams.state() != KafkaStreams.State.ERROR) Thread.sleep(50);
        boolean closed = streams.close(CloseOptions.timeout(LIMIT).withGroupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP));
        LINES.forEach(System.out::println);
        if (!closed || LINES.size() < count) throw new IllegalStateException(LINES.size() + " of " + count + " records came; closed: " + closed);
    }

    private static final class Keeping extends ContextualProcessor<byte[], byte[], Void, Void> {
        private final int count;

        private Keeping(int count) { this.count = count; }

        @Override public void process(Record<byte[], byte[]> record) {
            RecordMetadata place = context().recordMetadata().orElseThrow();
            if (LINES.size() >= count) Utils.sleep(50);  // it is about to be closed
            LINES.add(Rows.shown(place.topic(), place.partition(), place.offset(), record.timestamp(), record.key(), record.value(), record.headers()));
        }
    }
}
