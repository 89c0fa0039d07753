package seglogkafka;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.RecordVersion;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.storage.internals.checkpoint.CleanShutdownFileHandler;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;

import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;

/**
 * Writes partition directories through UnifiedLog's own append path; the same request gives the same bytes.
 *
 * 1. Choose magic and leader epoch by how far the log has come, codec and producer at random.
 * 2. Build a batch, append it as leader (the log gives offsets) or as follower (the generator does, with gaps).
 * 3. End a producer's transaction when its share of batches is written.
 * 4. Close as a broker does, write the checkpoints, and give the files the time of their newest record.
 */
final class Generator {
    private static final class Producer {
        final long id;
        short epoch;
        int sequence, batchesLeft;
        boolean open;
        Producer(long id) { this.id = id; }
    }

    private final File logDirectory;
    private final TopicPartition partition;
    private final Uuid topicId;
    private final Random random;
    private final Payloads payloads;
    private final LogConfig config;
    private final List<String> codecs, magics;
    private final long records, startMs, stepMs, jitterMs;
    private final int batchRecords, batchBytes, txnBatches, leaderEpochs, coordinatorEpoch, expirationMs;
    private final boolean headers, transactional, follower, appendTime, leaveOpenTxn, rollAtEnd, unclean, checkpoints, mtimeOfData;
    private final double abortRatio, nontxnRatio, epochBumpRatio, gapRatio;
    private final short txnVersion;
    private final List<Producer> producers = new ArrayList<>();
    private OpenLog opened;
    private long written, batches, commits, aborts;
    private int leaderEpoch;

    static Object generate(Options options) throws Exception {
        int partitions = options.integer("partitions", 1);
        List<Generator> generators = new ArrayList<>();
        for (int i = 0; i < partitions; i++) generators.add(new Generator(options, i));
        options.finish();
        List<Object> rows = new ArrayList<>();
        for (Generator generator : generators) rows.add(generator.run());
        Generator any = generators.get(0);
        if (any.checkpoints && !any.unclean) new CleanShutdownFileHandler(any.logDirectory.getPath()).write(1L);
        return Answers.object("cmd", "gen", "partitions", rows);
    }

    private Generator(Options options, int number) {
        logDirectory = options.file("directory");
        partition = new TopicPartition(options.text("topic", "t"), number);
        long seed = options.number("seed", 1);
        topicId = new Uuid(0x7365676c6f670000L + seed, partition.topic().hashCode() | 1L << 40);
        random = new Random(31 * seed + number);
        payloads = new Payloads(options, new Random(random.nextLong()));
        config = OpenLog.config(options, "delete");
        codecs = options.texts("codec", "none");
        magics = options.texts("magic", "2");
        records = options.number("records", 10_000);
        startMs = options.number("start_ms", 1_700_000_000_000L);
        stepMs = options.number("step_ms", 1);
        jitterMs = options.number("jitter_ms", 0);
        batchBytes = options.integer("batch_bytes", Integer.MAX_VALUE);
        batchRecords = options.integer("batch_records", batchBytes < Integer.MAX_VALUE ? Integer.MAX_VALUE : 100);
        headers = options.flag("headers", false);
        transactional = options.flag("transactional", false);
        boolean idempotent = options.flag("idempotent", transactional);
        int count = options.integer("producers", transactional ? 3 : 1);
        long firstId = options.number("producer_id_base", 1000);
        for (int i = 0; idempotent && i < count; i++) producers.add(new Producer(firstId + i));
        abortRatio = options.ratio("abort_ratio", 0);
        nontxnRatio = options.ratio("nontxn_ratio", 0);
        epochBumpRatio = options.ratio("epoch_bump_ratio", 0);
        txnBatches = options.integer("txn_batches", 3);
        txnVersion = (short) options.integer("txn_version", 1);
        leaveOpenTxn = options.flag("leave_open_txn", false);
        coordinatorEpoch = options.integer("coordinator_epoch", 0);
        follower = options.text("append_path", "leader").equals("follower");
        gapRatio = options.ratio("offset_gap_ratio", 0);
        appendTime = options.text("timestamp_type", "create").equals("append");
        leaderEpochs = options.integer("leader_epochs", 1);
        expirationMs = OpenLog.producerExpirationMs(options);
        rollAtEnd = options.flag("roll_at_end", false);
        unclean = options.flag("unclean", false);
        checkpoints = options.flag("checkpoints", true);
        mtimeOfData = options.text("mtime", "max-ts").equals("max-ts");
        if (gapRatio > 0 && !follower) throw new Options.Refused("offset_gap_ratio needs append_path follower");
        if (follower && !magics.equals(List.of("2"))) throw new Options.Refused("append_path follower writes magic 2 only");
    }

    private Map<String, Object> run() throws Exception {
        File directory = new File(logDirectory, partition.toString());
        String[] present = directory.list();
        if (present != null && present.length > 0) throw new Options.Refused("not empty: " + directory);
        opened = OpenLog.open(directory, config, new FrozenClock(startMs), 0, 0, true, Optional.of(topicId), expirationMs);
        UnifiedLog log = opened.log;
        log.partitionMetadataFile().orElseThrow().record(topicId); // a broker does this when it assigns the topic's id
        while (written < records) step();
        if (!leaveOpenTxn) for (Producer producer : producers) if (producer.open) endTransaction(producer);
        if (rollAtEnd) log.roll();
        log.updateHighWatermark(log.logEndOffset());
        opened.scheduler.runAll();
        Map<String, Object> row = Answers.object("dir", directory.getPath(), "records", written, "batches", batches, "commitMarkers", commits,
            "abortMarkers", aborts, "logStartOffset", log.logStartOffset(), "logEndOffset", log.logEndOffset(),
            "lastStableOffset", log.lastStableOffset(), "bytes", log.size(), "nowMs", opened.clock.milliseconds());
        if (!unclean) opened.close(); // left open, the files stay as a kill leaves them: indexes not trimmed, no last snapshot
        row.put("recoveryPoint", log.recoveryPoint());
        if (checkpoints) {
            OpenLog.writeCheckpoint(logDirectory, "recovery-point-offset-checkpoint", partition, log.recoveryPoint());
            OpenLog.writeCheckpoint(logDirectory, "log-start-offset-checkpoint", partition, log.logStartOffset());
            OpenLog.writeCheckpoint(logDirectory, "replication-offset-checkpoint", partition, log.logEndOffset());
        }
        row.put("segments", finishedSegments(directory));
        return row;
    }

    private void step() throws Exception {
        byte magic = Byte.parseByte(magics.get((int) (written * magics.size() / records)));
        leaderEpoch = (int) (written * leaderEpochs / records);
        String codec = codecs.get(random.nextInt(codecs.size()));
        if (magic < 2 && codec.equals("zstd")) codec = "none"; // zstd came with magic 2
        Producer producer = magic < 2 || producers.isEmpty() ? null : producers.get(random.nextInt(producers.size()));
        if (producer != null && transactional) {
            if (!producer.open && random.nextDouble() < nontxnRatio) producer = null;
            else if (!producer.open) {
                producer.open = true;
                producer.batchesLeft = 1 + random.nextInt(2 * txnBatches - 1);
            }
        } else if (producer != null && random.nextDouble() < epochBumpRatio) {
            producer.epoch++;
            producer.sequence = 0;
        }
        append(magic, codec, producer);
        if (producer != null && transactional && --producer.batchesLeft == 0) endTransaction(producer);
    }

    private void append(byte magic, String codec, Producer producer) throws IOException {
        UnifiedLog log = opened.log;
        long baseOffset = follower ? log.logEndOffset() + (random.nextDouble() < gapRatio ? 1 + random.nextInt(20) : 0) : 0;
        TimestampType type = magic == 0 ? TimestampType.NO_TIMESTAMP_TYPE
            : follower && appendTime ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME;
        opened.clock.advanceTo(startMs + written * stepMs);
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(ByteBuffer.allocate(1 << 16), magic, Compression.of(CompressionType.forName(codec)).build(),
            type, baseOffset, opened.clock.milliseconds(), producer == null ? RecordBatch.NO_PRODUCER_ID : producer.id,
            producer == null ? RecordBatch.NO_PRODUCER_EPOCH : producer.epoch, producer == null ? RecordBatch.NO_SEQUENCE : producer.sequence,
            producer != null && transactional, false, follower ? leaderEpoch : RecordBatch.NO_PARTITION_LEADER_EPOCH, Integer.MAX_VALUE);
        int count = 0;
        for (long bytes = 0; count < batchRecords && written < records && (count == 0 || bytes < batchBytes); count++) {
            byte[] key = payloads.key(), value = payloads.value();
            Header[] own = headers && magic == 2 ? payloads.headers() : Record.EMPTY_HEADERS;
            builder.append(magic == 0 ? RecordBatch.NO_TIMESTAMP : timestamp(), key, value, own);
            written++;
            bytes += 10 + (key == null ? 0 : key.length) + (value == null ? 0 : value.length);
        }
        MemoryRecords batch = builder.build();
        opened.clock.advanceTo(startMs + (written - 1) * stepMs);
        if (follower) log.appendAsFollower(batch, leaderEpoch);
        else if (magic < 2) log.appendAsLeaderWithRecordVersion(batch, leaderEpoch, RecordVersion.lookup(magic));
        else log.appendAsLeader(batch, leaderEpoch, AppendOrigin.CLIENT, RequestLocal.noCaching(), VerificationGuard.SENTINEL, (short) -1);
        if (producer != null) producer.sequence += count;
        batches++;
    }

    private long timestamp() {
        long jitter = jitterMs == 0 ? 0 : random.nextLong(-jitterMs, jitterMs + 1);
        return startMs + written * stepMs + jitter;
    }

    private void endTransaction(Producer producer) throws IOException {
        UnifiedLog log = opened.log;
        boolean abort = random.nextDouble() < abortRatio;
        boolean bump = txnVersion >= 2; // KIP-890: the marker carries the next epoch
        if (bump) producer.epoch++;
        MemoryRecords marker = MemoryRecords.withEndTransactionMarker(follower ? log.logEndOffset() : 0, opened.clock.milliseconds(), leaderEpoch,
            producer.id, producer.epoch, new EndTransactionMarker(abort ? ControlRecordType.ABORT : ControlRecordType.COMMIT, coordinatorEpoch));
        if (follower) log.appendAsFollower(marker, leaderEpoch);
        else log.appendAsLeader(marker, leaderEpoch, AppendOrigin.COORDINATOR, RequestLocal.noCaching(), VerificationGuard.SENTINEL, txnVersion);
        if (bump) producer.sequence = 0;
        producer.open = false;
        batches++;
        if (abort) aborts++;
        else commits++;
    }

    private List<Object> finishedSegments(File directory) throws IOException {
        List<Object> rows = new ArrayList<>();
        for (File file : OpenLog.logFiles(directory)) {
            long newest = newestTimestamp(file);
            if (mtimeOfData)
                for (String suffix : List.of(".log", ".index", ".timeindex"))
                    new File(directory, file.getName().replace(".log", suffix)).setLastModified(newest);
            rows.add(Answers.object("file", file.getName(), "sizeInBytes", file.length(), "maxTimestamp", newest));
        }
        return rows;
    }

    private long newestTimestamp(File file) throws IOException {
        long newest = -1;
        FileRecords segment = FileRecords.open(file, false);
        for (RecordBatch batch : segment.batches()) newest = Math.max(newest, batch.maxTimestamp());
        segment.channel().close();
        return newest < 0 ? startMs : newest;
    }
}
