package seglogkafka;

import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.CleanerStats;
import org.apache.kafka.storage.internals.log.CleanerWindow;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.slf4j.impl.StaticLoggerBinder;

import java.io.File;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * Passes of Kafka's Cleaner over one log.
 *
 * 1. The range: what LogCleanerManager calls cleanable, unless the request names its ends.
 * 2. A pass; the next begins where it ended, or at the first dirty offset again (redirty).
 * 3. Between passes the clock moves by advance_ms, so that delete horizons can be seen to pass.
 */
final class Cleaning {
    private final Options options;
    private final Map<String, Object> answer;
    private final SkimpyOffsetMap map;
    private final int ioBufferBytes, maxIoBufferBytes, passes;
    private final double loadFactor;
    private final long firstUncleanable, advanceMs;
    private final boolean redirty, roll, writeCheckpoint;
    private Optional<Long> lastClean;
    private long nextDirty = -1;

    private Cleaning(Options options) throws Exception {
        this.options = options;
        File directory = options.directory();
        answer = Answers.object("cmd", "clean", "dir", directory.getPath());
        map = new SkimpyOffsetMap(Math.toIntExact(options.number("dedupe_buffer_bytes", 128L << 20)), options.text("hash_algorithm", "MD5"));
        ioBufferBytes = options.integer("io_buffer_bytes", 256 << 10);
        maxIoBufferBytes = options.integer("max_io_buffer_bytes", (1 << 20) + 12);
        passes = options.integer("passes", 1);
        loadFactor = options.ratio("load_factor", 0.9);
        firstUncleanable = options.number("first_uncleanable_offset", -1);
        advanceMs = options.number("advance_ms", 0);
        redirty = options.flag("redirty", false);
        roll = options.flag("roll", false);
        writeCheckpoint = options.flag("write_checkpoint", false);
        boolean useCheckpoint = options.flag("use_checkpoint", false);
        long firstDirty = options.number("first_dirty_offset", -1);
        lastClean = firstDirty >= 0 ? Optional.of(firstDirty)
            : useCheckpoint ? OpenLog.checkpointed(directory, "cleaner-offset-checkpoint") : Optional.empty();
    }

    static Object clean(Options options) throws Exception { return new Cleaning(options).run(); }

    private Object run() throws Exception {
        try (OpenLog opened = OpenLog.openClean(options, "compact")) {
            UnifiedLog log = opened.log;
            if (roll && log.activeSegment().size() > 0) {
                log.roll();
                log.updateHighWatermark(log.logEndOffset());
                opened.scheduler.runAll();
            }
            answer.putAll(Answers.object("logStartOffset", log.logStartOffset(), "logEndOffset", log.logEndOffset(),
                "lastStableOffset", log.lastStableOffset(), "activeSegmentBaseOffset", log.activeSegment().baseOffset(),
                "activeProducers", log.producerIdCount(), "sizeBefore", log.size(), "segmentsBefore", opened.segments()));
            Cleaner cleaner = new Cleaner(0, map, ioBufferBytes, maxIoBufferBytes, loadFactor,
                new Throttler(Double.MAX_VALUE, 300, "cleaner-io", "bytes", Time.SYSTEM), opened.clock, partition -> { });
            List<Object> rows = new ArrayList<>();
            for (int number = 1; number <= passes; number++) {
                Map<String, Object> row = pass(cleaner, opened, number);
                rows.add(row);
                if (row.containsKey("error")) break;
                opened.clock.sleep(advanceMs);
            }
            opened.scheduler.runAll();
            answer.putAll(Answers.object("passes", rows, "sizeAfter", log.size(), "segmentsAfter", opened.segments()));
            if (writeCheckpoint && nextDirty >= 0)
                OpenLog.writeCheckpoint(log.dir().getParentFile(), "cleaner-offset-checkpoint", log.topicPartition(), nextDirty);
        }
        return answer;
    }

    private Map<String, Object> pass(Cleaner cleaner, OpenLog opened, int number) throws Exception {
        long nowMs = opened.clock.milliseconds();
        CleanerWindow.Range range = CleanerWindow.cleanable(opened.log, lastClean, nowMs);
        LogToClean work = new LogToClean(opened.log, range.firstDirtyOffset(), firstUncleanable >= 0 ? firstUncleanable : range.firstUncleanableOffset(), false);
        Map<String, Object> row = Answers.object("pass", number, "nowMs", nowMs, "firstDirtyOffset", range.firstDirtyOffset(),
            "firstUncleanableOffset", work.firstUncleanableOffset());
        if (work.cleanableBytes() == 0) { // a broker never picks such a log; doClean would answer "next dirty offset 0"
            row.put("skipped", "nothing cleanable");
            return row;
        }
        StaticLoggerBinder.capture(2);
        try {
            Map.Entry<Long, CleanerStats> done = cleaner.doClean(work, nowMs);
            nextDirty = done.getKey();
            row.putAll(Answers.object("cleanBytes", work.cleanBytes(), "cleanableBytes", work.cleanableBytes(), "cleanableRatio", work.cleanableRatio(),
                "nextDirtyOffset", nextDirty, "mapSlots", map.slots(), "mapEntries", map.size(), "mapLatestOffset", map.latestOffset()));
            row.putAll(CleanerWindow.statistics(done.getValue()));
            if (!redirty) lastClean = Optional.of(nextDirty);
        } catch (Exception e) {
            row.putAll(Answers.failure(e));
        }
        List<String> warnings = StaticLoggerBinder.captured();
        if (!warnings.isEmpty()) row.put("warnings", warnings);
        return row;
    }
}
