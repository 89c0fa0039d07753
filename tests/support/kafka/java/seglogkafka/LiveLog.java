package seglogkafka;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.EpochEntry;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.LogStartOffsetIncrementReason;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;

import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;

/**
 * Logs that stay open from request to request, so that a test can do one thing after the other and look at the state.
 *
 * What Kafka wants done later is done at the end of each request. An append that writes nothing leaves the leader epochs as
 * they were: Kafka notes a batch's epoch before it looks whether it takes the batch, and seglog does not.
 */
final class LiveLog {
    private static final Map<File, OpenLog> LOGS = new HashMap<>();

    private LiveLog() { }

    static Object live(Options options) throws Exception {
        File directory = options.file("directory");
        String what = options.text("do", "");
        if (what.equals("open")) return open(options, directory);
        OpenLog opened = LOGS.get(directory);
        if (opened == null) throw new Options.Refused("not open: " + directory);
        UnifiedLog log = opened.log;
        Map<String, Object> answer = new TreeMap<>();
        List<EpochEntry> epochs = log.leaderEpochCache().epochEntries();
        long end = log.logEndOffset();
        try {
            switch (what) {
                case "append" -> answer.put("append", append(opened, options));
                case "truncate_to" -> {
                    answer.put("truncated", log.truncateTo(options.number("offset", -1)));
                    log.updateHighWatermark(log.highWatermark()); // else the first unstable offset stays that of before
                }
                case "truncate_fully" -> log.truncateFullyAndStartAt(options.number("offset", -1), Optional.empty());
                case "delete_records" ->
                    log.maybeIncrementLogStartOffset(options.number("offset", -1), LogStartOffsetIncrementReason.ClientRecordDeletion);
                case "high_watermark" -> log.updateHighWatermark(options.number("offset", -1));
                case "roll" -> log.roll();
                case "flush" -> log.flush(false);
                case "retain" -> answer.put("deleted", retain(log, options));
                case "wait" -> opened.clock.sleep(options.number("ms", 0));
                case "close", "kill" -> {
                    LOGS.remove(directory);
                    if (what.equals("close")) opened.close();
                    else opened.abandon();
                    return answer;
                }
                default -> throw new Options.Refused("unknown step " + what);
            }
        } catch (Options.Refused e) {
            throw e;
        } catch (Exception e) { // Kafka's refusal is the answer that was asked for
            answer.putAll(Answers.failure(e));
        }
        if (what.equals("append") && log.logEndOffset() == end && !epochs.equals(log.leaderEpochCache().epochEntries())) {
            log.leaderEpochCache().clear();
            log.leaderEpochCache().assign(epochs);
            if (epochs.isEmpty()) log.leaderEpochCache().clearAndFlush();
        }
        options.finish();
        opened.scheduler.runAll();
        answer.put("state", state(log));
        return answer;
    }

    private static Object open(Options options, File directory) throws Exception {
        if (!directory.isDirectory()) throw new Options.Refused("no such directory: " + directory);
        LogConfig config = OpenLog.config(options, "delete");
        FrozenClock clock = new FrozenClock(options.number("now_ms", 0));
        long recoveryPoint = options.number("recovery_point", 0), logStart = options.number("log_start_offset", 0);
        boolean clean = options.flag("clean", true);
        int expiration = OpenLog.producerExpirationMs(options);
        options.finish();
        OpenLog opened;
        try {
            opened = OpenLog.open(directory, config, clock, logStart, recoveryPoint, clean, Optional.<Uuid>empty(), expiration);
        } catch (Exception e) {
            return Answers.failure(e);
        }
        LOGS.put(directory, opened);
        opened.log.updateHighWatermark(opened.log.logEndOffset());
        opened.scheduler.runAll();
        return Answers.object("state", state(opened.log));
    }

    private static Object append(OpenLog opened, Options options) throws IOException {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(options.field("data").binaryValue()));
        int leaderEpoch = options.integer("leader_epoch", 0);
        AppendOrigin origin = AppendOrigin.valueOf(options.text("origin", "client").toUpperCase(Locale.ROOT));
        short transactionVersion = (short) options.integer("txn_version", 1);
        long end = opened.log.logEndOffset();
        LogAppendInfo info = origin == AppendOrigin.REPLICATION ? opened.log.appendAsFollower(records, leaderEpoch)
            : opened.log.appendAsLeader(records, leaderEpoch, origin, RequestLocal.noCaching(), VerificationGuard.SENTINEL, transactionVersion);
        if (origin != AppendOrigin.REPLICATION && opened.log.logEndOffset() > end) opened.log.updateHighWatermark(opened.log.logEndOffset()); // the only replica
        return Answers.object("firstOffset", info.firstOffset(), "lastOffset", info.lastOffset(), "validBytes", info.validBytes());
    }

    private static int retain(UnifiedLog log, Options options) throws IOException {
        LogConfig before = log.config();
        Map<String, Object> settings = new HashMap<>(before.originals());
        settings.put("retention.ms", Long.toString(options.number("retention_ms", -1)));
        settings.put("retention.bytes", Long.toString(options.number("retention_bytes", -1)));
        log.updateConfig(new LogConfig(settings));
        try {
            return log.deleteOldSegments();
        } finally {
            log.updateConfig(before);
        }
    }

    private static Map<String, Object> state(UnifiedLog log) throws IOException {
        List<Object> epochs = new ArrayList<>(), segments = new ArrayList<>(), snapshots = new ArrayList<>();
        for (EpochEntry entry : log.leaderEpochCache().epochEntries()) epochs.add(List.of(entry.epoch(), entry.startOffset()));
        for (LogSegment segment : log.logSegments()) {
            segment.readMaxTimestampAndOffsetSoFar(); // read late it is lost: truncateTo first empties the index that it is read from
            segments.add(List.of(segment.baseOffset(), segment.size(), segment.offsetIndex().entries(), segment.timeIndex().entries()));
        }
        Map<String, Object> producers = new TreeMap<>();
        for (ProducerStateEntry entry : log.producerStateManager().activeProducers().values())
            producers.put(Long.toString(entry.producerId()), List.of(entry.producerEpoch(), entry.coordinatorEpoch(), entry.lastTimestamp(),
                entry.currentTxnFirstOffset().orElse(-1), entry.batchMetadata().stream()
                    .map(batch -> List.of(batch.lastSeq(), batch.lastOffset(), batch.offsetDelta(), batch.timestamp())).toList()));
        File[] files = log.dir().listFiles((parent, name) -> name.endsWith(".snapshot"));
        if (files != null) for (File file : files) snapshots.add(file.getName());
        snapshots.sort(null);
        return Answers.object("logStartOffset", log.logStartOffset(), "logEndOffset", log.logEndOffset(), "highWatermark", log.highWatermark(),
            "lastStableOffset", log.lastStableOffset(), "recoveryPoint", log.recoveryPoint(), "epochs", epochs, "segments", segments,
            "producers", producers, "snapshots", snapshots);
    }
}
