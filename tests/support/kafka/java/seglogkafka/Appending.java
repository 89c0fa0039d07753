package seglogkafka;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/** Appends batches, given as their bytes or as records to build, to a log through UnifiedLog: as leader or as follower. */
final class Appending {
    private Appending() { }

    static Object append(Options options) throws Exception {
        List<JsonNode> batches = options.many("batches");
        boolean follower = options.text("append_path", "leader").equals("follower");
        AppendOrigin origin = AppendOrigin.valueOf(options.text("origin", "client").toUpperCase(Locale.ROOT));
        int leaderEpoch = options.integer("leader_epoch", 0);
        short transactionVersion = (short) options.integer("txn_version", 1);
        boolean roll = options.flag("roll", false);
        if (!options.directory().getName().contains("-")) throw new Options.Refused("the directory's name must be topic-partition");
        try (OpenLog opened = OpenLog.openClean(options, "delete")) {
            List<Object> appends = new ArrayList<>();
            for (JsonNode batch : batches) {
                MemoryRecords records = records(batch, opened.clock.milliseconds(), leaderEpoch);
                try {
                    appends.add(info(follower ? opened.log.appendAsFollower(records, leaderEpoch)
                        : opened.log.appendAsLeader(records, leaderEpoch, origin, RequestLocal.noCaching(), VerificationGuard.SENTINEL, transactionVersion)));
                } catch (Exception e) { // Kafka's refusal is the answer that was asked for
                    appends.add(Answers.failure(e));
                }
            }
            if (roll) opened.log.roll();
            opened.log.updateHighWatermark(opened.log.logEndOffset());
            UnifiedLog log = opened.log;
            return Answers.object("cmd", "append", "nowMs", opened.clock.milliseconds(), "appends", appends, "logStartOffset", log.logStartOffset(),
                "logEndOffset", log.logEndOffset(), "lastStableOffset", log.lastStableOffset(), "segments", opened.segments());
        }
    }

    private static Map<String, Object> info(LogAppendInfo info) {
        return Answers.object("firstOffset", info.firstOffset(), "lastOffset", info.lastOffset(), "maxTimestamp", info.maxTimestamp(),
            "logAppendTime", info.logAppendTime(), "sourceCompression", info.sourceCompression().name, "validBytes", info.validBytes(),
            "lastLeaderEpoch", info.lastLeaderEpoch().orElse(null), "recordErrors", info.recordErrors().stream().map(String::valueOf).toList());
    }

    private static MemoryRecords records(JsonNode batch, long nowMs, int leaderEpoch) throws IOException {
        if (batch.has("data")) return MemoryRecords.readableRecords(ByteBuffer.wrap(batch.get("data").binaryValue()));
        byte magic = (byte) batch.path("magic").asInt(2);
        TimestampType type = magic == 0 ? TimestampType.NO_TIMESTAMP_TYPE : TimestampType.CREATE_TIME;
        try (MemoryRecordsBuilder builder = new MemoryRecordsBuilder(ByteBuffer.allocate(1 << 16), magic,
                Compression.of(CompressionType.forName(batch.path("codec").asText("none"))).build(), type, batch.path("base_offset").asLong(0), nowMs,
                batch.path("producer_id").asLong(RecordBatch.NO_PRODUCER_ID), (short) batch.path("producer_epoch").asInt(RecordBatch.NO_PRODUCER_EPOCH),
                batch.path("base_sequence").asInt(RecordBatch.NO_SEQUENCE), batch.path("transactional").asBoolean(false), false, leaderEpoch, Integer.MAX_VALUE)) {
            for (JsonNode record : batch.path("records")) {
                long timestamp = magic == 0 ? RecordBatch.NO_TIMESTAMP : record.path("timestamp").asLong(nowMs);
                builder.append(timestamp, bytes(record.get("key")), bytes(record.get("value")), headers(record.path("headers")));
            }
            return builder.build();
        }
    }

    private static byte[] bytes(JsonNode value) { return value == null || value.isNull() ? null : Base64.getDecoder().decode(value.asText()); }

    private static Header[] headers(JsonNode pairs) {
        List<Header> headers = new ArrayList<>();
        pairs.forEach(pair -> headers.add(new RecordHeader(pair.get(0).asText(), bytes(pair.get(1)))));
        return headers.toArray(Header[]::new);
    }
}
