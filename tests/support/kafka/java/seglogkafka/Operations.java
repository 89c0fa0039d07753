package seglogkafka;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.message.FetchResponseData;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogStartOffsetIncrementReason;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.slf4j.impl.StaticLoggerBinder;

import java.io.File;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;

/** What a broker does to one log after it exists: open it (after a crash or not), drop old segments, read, search by time. */
final class Operations {
    private Operations() { }

    static Object open(Options options, boolean cleanShutdown) throws Exception {
        File directory = options.directory();
        LogConfig config = OpenLog.config(options, "delete");
        FrozenClock clock = new FrozenClock(OpenLog.nowMs(options, directory));
        long recoveryPoint = options.number("recovery_point", 0), logStart = OpenLog.logStart(options, directory);
        int expiration = OpenLog.producerExpirationMs(options), level = options.integer("events_level", 2);
        options.finish();
        Map<String, Object> answer = Answers.object("cmd", cleanShutdown ? "load" : "recover", "dir", directory.getPath(),
            "hadCleanShutdown", cleanShutdown, "nowMs", clock.milliseconds(), "recoveryPointIn", recoveryPoint);
        Map<String, Long> before = sizes(directory);
        StaticLoggerBinder.capture(level);
        try (OpenLog opened = OpenLog.open(directory, config, clock, logStart, recoveryPoint, cleanShutdown, Optional.empty(), expiration)) {
            UnifiedLog log = opened.log;
            List<String> events = StaticLoggerBinder.captured();
            log.updateHighWatermark(log.logEndOffset());
            opened.scheduler.runAll();
            answer.putAll(Answers.object("logStartOffset", log.logStartOffset(), "logEndOffset", log.logEndOffset(),
                "lastStableOffset", log.lastStableOffset(), "recoveryPoint", log.recoveryPoint(), "numSegments", log.numberOfSegments(),
                "activeProducers", log.producerIdCount()));
            answer.putAll(losses(before, sizes(directory)));
            answer.putAll(Answers.object("segments", opened.segments(), "events", events));
        } catch (Exception e) {
            StaticLoggerBinder.captured();
            answer.putAll(Answers.failure(e));
        }
        return answer;
    }

    private static Map<String, Long> sizes(File directory) {
        Map<String, Long> sizes = new TreeMap<>();
        for (File file : OpenLog.logFiles(directory)) sizes.put(file.getName(), file.length());
        return sizes;
    }

    private static Map<String, Object> losses(Map<String, Long> before, Map<String, Long> after) {
        List<Object> shortened = new ArrayList<>(), gone = new ArrayList<>();
        long bytes = 0;
        for (Map.Entry<String, Long> file : before.entrySet()) {
            long size = file.getValue(), left = after.getOrDefault(file.getKey(), 0L);
            bytes += Math.max(0, size - left);
            if (!after.containsKey(file.getKey())) gone.add(Answers.object("file", file.getKey(), "sizeInBytes", size));
            else if (left < size) shortened.add(Answers.object("file", file.getKey(), "from", size, "to", left));
        }
        return Answers.object("truncatedBytes", bytes, "truncatedSegments", shortened, "deletedSegments", gone);
    }

    static Object retain(Options options) throws Exception {
        long newStart = options.number("increment_log_start_offset", -1), highWatermark = options.number("high_watermark", -1);
        try (OpenLog opened = OpenLog.openClean(options, "delete")) {
            UnifiedLog log = opened.log;
            if (highWatermark >= 0) log.updateHighWatermark(highWatermark);
            List<Object> before = opened.segments(), deleted = new ArrayList<>();
            Map<String, Object> answer = Answers.object("cmd", "retain", "dir", log.dir().getPath(), "nowMs", opened.clock.milliseconds(),
                "retentionMs", log.config().retentionMs, "retentionBytes", log.config().retentionSize, "highWatermark", log.highWatermark(),
                "logEndOffset", log.logEndOffset(), "sizeBefore", log.size(), "segmentsBefore", before);
            if (newStart >= 0) log.maybeIncrementLogStartOffset(newStart, LogStartOffsetIncrementReason.ClientRecordDeletion);
            StaticLoggerBinder.capture(3);
            int count = log.deleteOldSegments();
            List<String> events = StaticLoggerBinder.captured();
            opened.scheduler.runAll();
            List<Object> after = opened.segments();
            List<Object> kept = after.stream().map(Operations::baseOffset).toList();
            for (Object segment : before) if (!kept.contains(baseOffset(segment))) deleted.add(baseOffset(segment));
            answer.putAll(Answers.object("deletedCount", count, "deletedBaseOffsets", deleted, "logStartOffset", log.logStartOffset(),
                "sizeAfter", log.size(), "segmentsAfter", after, "events", events));
            OpenLog.writeCheckpoint(log.dir().getParentFile(), "log-start-offset-checkpoint", log.topicPartition(), log.logStartOffset());
            return answer;
        }
    }

    private static Object baseOffset(Object segment) { return ((Map<?, ?>) segment).get("baseOffset"); }

    static Object search(Options options) throws Exception {
        List<JsonNode> targets = options.many("timestamps");
        List<Object> results = new ArrayList<>();
        try (OpenLog opened = OpenLog.openClean(options, "delete")) {
            for (JsonNode target : targets) {
                Optional<FileRecords.TimestampAndOffset> found =
                    opened.log.fetchOffsetByTimestamp(target.asLong(), Optional.empty()).timestampAndOffsetOpt();
                Map<String, Object> row = Answers.object("target", target.asLong(), "found", found.isPresent());
                found.ifPresent(f -> row.putAll(Answers.object("timestamp", f.timestamp, "offset", f.offset, "leaderEpoch", f.leaderEpoch.orElse(null))));
                results.add(row);
            }
            return Answers.object("cmd", "search", "nowMs", opened.clock.milliseconds(), "results", results);
        }
    }

    static Object read(Options options) throws Exception {
        List<JsonNode> offsets = options.many("offsets");
        int maxBytes = options.integer("max_bytes", 1 << 20);
        long highWatermark = options.number("high_watermark", -1);
        boolean minOneMessage = options.flag("min_one_message", true), records = options.flag("records", false);
        String isolation = options.text("isolation", "log_end");
        List<Object> results = new ArrayList<>();
        try (OpenLog opened = OpenLog.openClean(options, "delete")) {
            UnifiedLog log = opened.log;
            if (highWatermark >= 0) log.updateHighWatermark(highWatermark);
            for (JsonNode offset : offsets) {
                Map<String, Object> row = Answers.object("offset", offset.asLong());
                try {
                    row.putAll(fetched(log.read(offset.asLong(), maxBytes, FetchIsolation.valueOf(isolation.toUpperCase(Locale.ROOT)), minOneMessage), records));
                } catch (ApiException e) {
                    row.putAll(Answers.failure(e));
                }
                results.add(row);
            }
            return Answers.object("cmd", "read", "nowMs", opened.clock.milliseconds(), "isolation", isolation, "maxBytes", maxBytes,
                "logStartOffset", log.logStartOffset(), "logEndOffset", log.logEndOffset(), "highWatermark", log.highWatermark(),
                "lastStableOffset", log.lastStableOffset(), "results", results);
        }
    }

    private static Map<String, Object> fetched(FetchDataInfo info, boolean records) {
        List<Object> batches = new ArrayList<>();
        long whole = 0;
        for (RecordBatch batch : info.records.batches()) {
            whole += batch.sizeInBytes();
            Map<String, Object> row = Lister.batch(batch, null, 0);
            row.remove("t");
            row.putAll(Answers.object("sizeInBytes", batch.sizeInBytes(), "crc", batch.checksum()));
            if (records) {
                List<Object> inside = new ArrayList<>();
                for (Record record : batch) {
                    Map<String, Object> fields = Lister.record(record);
                    fields.remove("t");
                    inside.add(fields);
                }
                row.put("records", inside);
            }
            batches.add(row);
        }
        Map<String, Object> row = Answers.object("fetchOffset", info.fetchOffsetMetadata.messageOffset,
            "segmentBaseOffset", info.fetchOffsetMetadata.segmentBaseOffset, "relativePosition", info.fetchOffsetMetadata.relativePositionInSegment,
            "firstEntryIncomplete", info.firstEntryIncomplete, "sizeInBytes", info.records.sizeInBytes(),
            "partialTrailingBytes", info.records.sizeInBytes() - whole, "batches", batches);
        info.abortedTransactions.ifPresent(transactions -> {
            List<Object> aborted = new ArrayList<>();
            for (FetchResponseData.AbortedTransaction one : transactions)
                aborted.add(Answers.object("producerId", one.producerId(), "firstOffset", one.firstOffset()));
            row.put("abortedTransactions", aborted);
        });
        return row;
    }
}
