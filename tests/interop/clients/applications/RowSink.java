import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Map;

import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.connect.cli.ConnectStandalone;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.sink.SinkConnector;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTask;

/**
 * A sink connector in a standalone worker, which takes COUNT records or a few more, commits them, and prints each:
 * BOOTSTRAP TOPICS ISOLATION GROUP COUNT.
 */
public final class RowSink extends SinkConnector {
    private static final List<String> LINES = Collections.synchronizedList(new ArrayList<>());
    private static final long LIMIT_MS = 500_000;
    private static final String CONVERTER = "org.apache.kafka.connect.converters.ByteArrayConverter";

    private Map<String, String> settings;

    public static void main(String[] arguments) throws Exception {
        Path work = Files.createTempDirectory("connect");
        Path worker = Files.write(work.resolve("worker.properties"), List.of(
            "bootstrap.servers=" + arguments[0], "listeners=HTTP://127.0.0.1:0", "plugin.discovery=service_load",
            "offset.storage.file.filename=" + work.resolve("offsets"),
            "key.converter=" + CONVERTER, "value.converter=" + CONVERTER, "header.converter=" + CONVERTER));
        Path sink = Files.write(work.resolve("sink.properties"), List.of(
            "name=" + arguments[3], "connector.class=RowSink", "tasks.max=1", "topics=" + arguments[1],
            "consumer.override.isolation.level=" + arguments[2], "consumer.override.auto.offset.reset=earliest",
            "consumer.override.max.poll.records=50", "count=" + arguments[4]));
        Thread connect = new Thread(() -> ConnectStandalone.main(new String[] {worker.toString(), sink.toString()}));
        connect.start();
        int count = Integer.parseInt(arguments[4]);
        long deadline = System.currentTimeMillis() + LIMIT_MS;
        while (LINES.size() < count && System.currentTimeMillis() < deadline && connect.isAlive()) Thread.sleep(50);
        if (LINES.size() < count) System.err.println(LINES.size() + " of " + count + " records came");
        System.exit(LINES.size() < count ? 1 : 0);  // the worker's own hook stops it in order
    }

    @Override public String version() { return "1"; }
    @Override public void start(Map<String, String> given) { settings = given; }
    @Override public void stop() { }
    @Override public ConfigDef config() { return new ConfigDef(); }
    @Override public Class<? extends Task> taskClass() { return Taking.class; }
    @Override public List<Map<String, String>> taskConfigs(int most) { return List.of(settings); }

    /** Its lines are printed when it stops, after it has committed. */
    public static final class Taking extends SinkTask {
        private int count;

        @Override public String version() { return "1"; }
        @Override public void start(Map<String, String> settings) { count = Integer.parseInt(settings.get("count")); }
        @Override public void stop() { LINES.forEach(System.out::println); }

        @Override public void put(Collection<SinkRecord> records) {
            if (LINES.size() >= count && !records.isEmpty()) Utils.sleep(500);  // the worker is about to be stopped
            for (SinkRecord each : records) {
                List<Header> headers = new ArrayList<>();
                each.headers().forEach(one -> headers.add(new RecordHeader(one.key(), (byte[]) one.value())));
                LINES.add(Rows.shown(each.topic(), each.kafkaPartition(), each.kafkaOffset(), each.timestamp(), (byte[]) each.key(), (byte[]) each.value(), headers));
            }
        }
    }
}
