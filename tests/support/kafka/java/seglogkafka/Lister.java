package seglogkafka;

import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.internal.FileLogInputStream.FileChannelRecordBatch;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.*; // 4.4 has moved classes of this package to `internals`
import org.apache.kafka.common.utils.internals.*;

import java.io.File;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;

/** Every batch and record of .log files as Kafka's own parser reads them: one canonical JSON line each, or their SHA-256. */
final class Lister {
    private final boolean logical;
    private final boolean batchesOnly;
    private final boolean validate;
    private final Consumer<String> lines;
    private long batches, records, bytes, errors;

    private Lister(Options options, Consumer<String> lines) {
        String fields = options.text("fields", "full");
        if (!List.of("full", "logical").contains(fields)) throw new Options.Refused("fields is full or logical");
        this.logical = fields.equals("logical");
        this.batchesOnly = options.flag("batches_only", false);
        this.validate = options.flag("validate", true);
        this.lines = lines;
    }

    static Object list(Options options, Consumer<String> lines) {
        return new Lister(options, lines).run(options);
    }

    static Object digest(Options options) throws Exception {
        MessageDigest sha256 = MessageDigest.getInstance("SHA-256");
        Lister lister = new Lister(options, line -> sha256.update((line + "\n").getBytes(StandardCharsets.UTF_8)));
        lister.run(options);
        return Answers.object("cmd", "digest", "fields", lister.logical ? "logical" : "full", "batchesOnly", lister.batchesOnly,
            "sha256", HexFormat.of().formatHex(sha256.digest()), "batches", lister.batches, "records", lister.records,
            "bytes", lister.bytes, "errors", lister.errors);
    }

    private Object run(Options options) {
        File path = options.file("path");
        options.finish();
        for (File file : path.isDirectory() ? OpenLog.logFiles(path) : List.of(path)) {
            long[] position = {0};
            try {
                segment(file, position);
            } catch (Exception e) { // what Kafka could not read is an answer, and ends this file only
                errors++;
                Map<String, Object> row = Answers.object("t", "error", "segment", file.getName(), "position", position[0], "class", e.getClass().getSimpleName());
                if (!logical) row.put("message", String.valueOf(e.getMessage()));
                lines.accept(Answers.json(row));
            }
        }
        return Answers.object("batches", batches, "records", records, "bytes", bytes, "errors", errors);
    }

    private void segment(File file, long[] position) throws Exception {
        FileRecords segment = FileRecords.open(file, false);
        try {
            for (FileChannelRecordBatch batch : segment.batches()) {
                position[0] = batch.position();
                if (validate) batch.ensureValid();
                Map<String, Object> row = batch(batch, logical ? null : file.getName(), batch.position());
                lines.accept(Answers.json(row));
                batches++;
                bytes += batch.sizeInBytes();
                if (!batchesOnly) records(batch);
                position[0] += batch.sizeInBytes();
            }
            long left = segment.sizeInBytes() - position[0];
            if (left > 0) {
                errors++;
                lines.accept(Answers.json(Answers.object("t", "trailing", "segment", file.getName(), "bytes", left)));
            }
        } finally {
            segment.channel().close(); // close() would trim and flush a file that is only looked at
        }
    }

    private void records(RecordBatch batch) {
        try (CloseableIterator<Record> iterator = batch.streamingIterator(BufferSupplier.create())) {
            while (iterator.hasNext()) {
                lines.accept(Answers.json(record(iterator.next())));
                records++;
            }
        }
    }

    /** segment null: without what depends on the layout or on the build of a compressor. */
    static Map<String, Object> batch(RecordBatch batch, String segment, long position) {
        Map<String, Object> row = Answers.object("t", "batch");
        if (segment != null) {
            row.put("segment", segment);
            row.put("position", position);
            row.put("sizeInBytes", batch.sizeInBytes());
        }
        row.putAll(Answers.object("baseOffset", batch.baseOffset(), "lastOffset", batch.lastOffset(), "magic", batch.magic()));
        if (segment != null) row.put("crc", batch.checksum());
        row.putAll(Answers.object("codec", batch.compressionType().name, "timestampType", batch.timestampType().name,
            "maxTimestamp", batch.maxTimestamp(),
            "deleteHorizonMs", batch.deleteHorizonMs().isPresent() ? (Object) batch.deleteHorizonMs().getAsLong() : null,
            "producerId", batch.producerId(), "producerEpoch", batch.producerEpoch(), "baseSequence", batch.baseSequence(),
            "lastSequence", batch.lastSequence(), "isTransactional", batch.isTransactional(), "isControl", batch.isControlBatch(),
            "partitionLeaderEpoch", batch.partitionLeaderEpoch(), "count", batch.countOrNull()));
        return row;
    }

    static Map<String, Object> record(Record record) {
        List<Object> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            List<Object> pair = new ArrayList<>();
            pair.add(header.key());
            pair.add(header.value() == null ? null : base64(ByteBuffer.wrap(header.value())));
            headers.add(pair);
        }
        return Answers.object("t", "record", "offset", record.offset(), "timestamp", record.timestamp(), "sequence", record.sequence(),
            "key", record.hasKey() ? base64(record.key()) : null, "value", record.hasValue() ? base64(record.value()) : null,
            "headers", headers);
    }

    private static String base64(ByteBuffer bytes) {
        byte[] copy = new byte[bytes.remaining()];
        bytes.duplicate().get(copy);
        return Base64.getEncoder().encodeToString(copy);
    }
}
