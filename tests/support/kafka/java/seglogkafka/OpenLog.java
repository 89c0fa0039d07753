package seglogkafka;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.TopicConfig;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

import java.io.File;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;

/** A UnifiedLog with a clock that stands still, opened from a request's options and closed as LogManager closes it. */
final class OpenLog implements AutoCloseable {
    private static final Map<String, String> TOPIC_OPTIONS = Map.ofEntries(
        Map.entry("segment_bytes", LogConfig.INTERNAL_SEGMENT_BYTES_CONFIG), // the public name refuses less than 1 MiB
        Map.entry("segment_ms", TopicConfig.SEGMENT_MS_CONFIG),
        Map.entry("segment_index_bytes", TopicConfig.SEGMENT_INDEX_BYTES_CONFIG),
        Map.entry("index_interval_bytes", TopicConfig.INDEX_INTERVAL_BYTES_CONFIG),
        Map.entry("max_message_bytes", TopicConfig.MAX_MESSAGE_BYTES_CONFIG),
        Map.entry("delete_retention_ms", TopicConfig.DELETE_RETENTION_MS_CONFIG),
        Map.entry("min_lag_ms", TopicConfig.MIN_COMPACTION_LAG_MS_CONFIG),
        Map.entry("max_lag_ms", TopicConfig.MAX_COMPACTION_LAG_MS_CONFIG),
        Map.entry("retention_ms", TopicConfig.RETENTION_MS_CONFIG),
        Map.entry("retention_bytes", TopicConfig.RETENTION_BYTES_CONFIG),
        Map.entry("preallocate", TopicConfig.PREALLOCATE_CONFIG),
        Map.entry("cleanup_policy", TopicConfig.CLEANUP_POLICY_CONFIG),
        Map.entry("compression_type", TopicConfig.COMPRESSION_TYPE_CONFIG));

    final UnifiedLog log;
    final FrozenClock clock;
    final LaterScheduler scheduler;
    private final BrokerTopicStats stats;

    private OpenLog(UnifiedLog log, FrozenClock clock, LaterScheduler scheduler, BrokerTopicStats stats) {
        this.log = log;
        this.clock = clock;
        this.scheduler = scheduler;
        this.stats = stats;
    }

    /** Topic configuration: what the request says, else no retention and any timestamp, so that nothing happens unasked. */
    static LogConfig config(Options options, String cleanupPolicy) {
        Map<String, Object> settings = new HashMap<>();
        settings.put(TopicConfig.CLEANUP_POLICY_CONFIG, cleanupPolicy);
        settings.put(TopicConfig.RETENTION_MS_CONFIG, "-1");
        settings.put(TopicConfig.FILE_DELETE_DELAY_MS_CONFIG, "0");
        settings.put(TopicConfig.MESSAGE_TIMESTAMP_BEFORE_MAX_MS_CONFIG, Long.toString(Long.MAX_VALUE));
        settings.put(TopicConfig.MESSAGE_TIMESTAMP_AFTER_MAX_MS_CONFIG, Long.toString(Long.MAX_VALUE));
        TOPIC_OPTIONS.forEach((option, setting) -> {
            if (options.has(option)) settings.put(setting, options.text(option, ""));
        });
        if (options.text("timestamp_type", "create").equals("append"))
            settings.put(TopicConfig.MESSAGE_TIMESTAMP_TYPE_CONFIG, "LogAppendTime");
        JsonNode more = options.field("config");
        if (more != null) more.fields().forEachRemaining(entry -> settings.put(entry.getKey(), entry.getValue().asText()));
        return new LogConfig(settings);
    }

    static OpenLog open(File directory, LogConfig config, FrozenClock clock, long logStart, long recoveryPoint,
                        boolean cleanShutdown, Optional<Uuid> topicId, int producerExpirationMs) throws Exception {
        LaterScheduler scheduler = new LaterScheduler();
        BrokerTopicStats stats = new BrokerTopicStats();
        UnifiedLog log = UnifiedLog.create(directory, config, logStart, recoveryPoint, scheduler, stats, clock, 900_000,
            new ProducerStateManagerConfig(producerExpirationMs, false), 600_000, new LogDirFailureChannel(8), cleanShutdown, topicId);
        return new OpenLog(log, clock, scheduler, stats);
    }

    /** As after a clean shutdown, everything replicated: high watermark = log end offset. Checks the options first. */
    static OpenLog openClean(Options options, String cleanupPolicy) throws Exception {
        File directory = options.directory();
        LogConfig config = config(options, cleanupPolicy);
        FrozenClock clock = new FrozenClock(nowMs(options, directory));
        long logStart = logStart(options, directory);
        int expiration = producerExpirationMs(options);
        options.finish();
        OpenLog opened = open(directory, config, clock, logStart, 0, true, Optional.empty(), expiration);
        opened.log.updateHighWatermark(opened.log.logEndOffset());
        return opened;
    }

    static int producerExpirationMs(Options options) { return options.integer("producer_expiration_ms", 86_400_000); }

    static long logStart(Options options, File directory) throws IOException {
        return options.number("log_start_offset", checkpointed(directory, "log-start-offset-checkpoint").orElse(0L));
    }

    /** Default: the newest mtime of a .log that holds something, so that a run does not depend on the day it is made. */
    static long nowMs(Options options, File directory) {
        long newest = logFiles(directory).stream().filter(f -> f.length() > 0).mapToLong(File::lastModified).max().orElse(0);
        return options.number("now_ms", newest);
    }

    static List<File> logFiles(File directory) {
        File[] files = directory.listFiles((parent, name) -> name.endsWith(".log"));
        if (files == null) throw new Options.Refused("no such directory: " + directory);
        Arrays.sort(files);
        return Arrays.asList(files);
    }

    static Optional<Long> checkpointed(File directory, String name) throws IOException {
        File file = new File(directory.getParentFile(), name);
        if (!file.exists()) return Optional.empty();
        return Optional.ofNullable(checkpoint(file).read().get(UnifiedLog.parseTopicPartitionName(directory)));
    }

    static void writeCheckpoint(File logDirectory, String name, TopicPartition partition, long offset) throws IOException {
        OffsetCheckpointFile file = checkpoint(new File(logDirectory, name));
        Map<TopicPartition, Long> offsets = new TreeMap<>(Comparator.comparing(TopicPartition::topic).thenComparingInt(TopicPartition::partition));
        offsets.putAll(file.read());
        offsets.put(partition, offset);
        file.write(offsets);
    }

    private static OffsetCheckpointFile checkpoint(File file) throws IOException {
        return new OffsetCheckpointFile(file, new LogDirFailureChannel(8));
    }

    List<Object> segments() throws IOException {
        List<Object> rows = new ArrayList<>();
        for (LogSegment segment : log.logSegments())
            rows.add(Answers.object("baseOffset", segment.baseOffset(), "sizeInBytes", segment.size(),
                "lastModified", segment.lastModified(), "largestTimestamp", segment.largestTimestamp(),
                "nextOffset", segment.readNextOffset(), "offsetIndexEntries", segment.offsetIndex().entries(),
                "timeIndexEntries", segment.timeIndex().entries()));
        return rows;
    }

    /** As a kill leaves it, but that the process goes on: files are given back as they are. */
    void abandon() {
        Versions.closeAsIs(log);
        log.removeLogMetrics();
        log.producerExpireCheck().cancel(true);
        stats.close();
    }

    @Override public void close() throws Exception {
        try {
            scheduler.runAll();
            Versions.call(log, "prepareActiveSegmentForClose"); // before 4.4 it is a part of close()
            log.flush(true);
        } finally {
            log.close();
            log.removeLogMetrics();
            stats.close();
        }
        scheduler.runAll();
    }
}
