package seglogkafka;

import org.apache.kafka.storage.internals.log.BatchMetadata;
import org.apache.kafka.storage.internals.log.OffsetIndex;
import org.apache.kafka.storage.internals.log.OffsetPosition;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.TimeIndex;
import org.apache.kafka.storage.internals.log.TimestampOffset;
import org.apache.kafka.storage.internals.log.TransactionIndex;

import java.io.File;
import java.nio.file.Files;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;

/** What Kafka's classes read from everything in a partition directory that is not a .log: size, SHA-256, entries or lines. */
final class IndexLister {
    private static final int LARGEST_TEXT_BYTES = 65_536;

    private IndexLister() { }

    static Object index(Options options) throws Exception {
        File directory = options.directory();
        options.finish();
        File[] files = directory.listFiles(File::isFile);
        Arrays.sort(files);
        Map<String, Object> answer = new LinkedHashMap<>();
        for (File file : files) {
            if (file.getName().endsWith(".log")) continue;
            byte[] content = Files.readAllBytes(file.toPath());
            String digest = HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(content));
            Map<String, Object> row = Answers.object("sizeInBytes", content.length, "sha256", digest);
            try {
                row.putAll(contents(file));
            } catch (Exception e) {
                row.putAll(Answers.failure(e));
            }
            answer.put(file.getName(), row);
        }
        return answer;
    }

    private static Map<String, Object> contents(File file) throws Exception {
        String name = file.getName();
        if (name.endsWith(".index")) return Answers.object("entries", offsetIndex(file));
        if (name.endsWith(".timeindex")) return Answers.object("entries", timeIndex(file));
        if (name.endsWith(".txnindex")) return Answers.object("entries", transactionIndex(file));
        if (name.endsWith(".snapshot")) return Answers.object("entries", snapshot(file));
        return file.length() < LARGEST_TEXT_BYTES ? Answers.object("lines", Files.readAllLines(file.toPath())) : Map.of();
    }

    private static long baseOffset(File file) { return Long.parseLong(file.getName().substring(0, file.getName().indexOf('.'))); }

    // An index that was never trimmed ends in zeros, which read as entries at the base offset: DumpLogSegments stops there too.
    private static List<Object> offsetIndex(File file) throws Exception {
        List<Object> entries = new ArrayList<>();
        if (file.length() == 0) return entries;
        OffsetIndex index = new OffsetIndex(file, baseOffset(file), -1, false);
        for (int i = 0; i < index.entries(); i++) {
            OffsetPosition entry = index.entry(i);
            if (i > 0 && entry.offset() == index.baseOffset()) break;
            entries.add(Answers.object("offset", entry.offset(), "position", entry.position()));
        }
        Versions.closeAsIs(index);
        return entries;
    }

    private static List<Object> timeIndex(File file) throws Exception {
        List<Object> entries = new ArrayList<>();
        if (file.length() == 0) return entries;
        TimeIndex index = new TimeIndex(file, baseOffset(file), -1, false);
        for (int i = 0; i < index.entries(); i++) {
            TimestampOffset entry = index.entry(i);
            if (i > 0 && entry.offset() == index.baseOffset()) break;
            entries.add(Answers.object("timestamp", entry.timestamp(), "offset", entry.offset()));
        }
        Versions.closeAsIs(index);
        return entries;
    }

    private static List<Object> transactionIndex(File file) throws Exception {
        List<Object> entries = new ArrayList<>();
        try (TransactionIndex index = new TransactionIndex(baseOffset(file), file)) {
            for (var aborted : index.allAbortedTxns())
                entries.add(Answers.object("version", 0, // both Kafkas refuse others
                    "producerId", aborted.producerId(), "firstOffset", aborted.firstOffset(),
                    "lastOffset", aborted.lastOffset(), "lastStableOffset", aborted.lastStableOffset()));
        }
        return entries;
    }

    private static List<Object> snapshot(File file) throws Exception {
        List<Object> entries = new ArrayList<>();
        for (ProducerStateEntry entry : ProducerStateManager.readSnapshot(file)) {
            OptionalLong open = entry.currentTxnFirstOffset();
            Map<String, Object> row = Answers.object("producerId", entry.producerId(), "producerEpoch", entry.producerEpoch(),
                "coordinatorEpoch", entry.coordinatorEpoch(), "currentTxnFirstOffset", open.isPresent() ? (Object) open.getAsLong() : null,
                "lastTimestamp", entry.lastTimestamp());
            for (BatchMetadata batch : entry.batchMetadata())
                row.putAll(Answers.object("firstSequence", batch.firstSeq(), "lastSequence", batch.lastSeq(), "lastOffset", batch.lastOffset(),
                    "offsetDelta", batch.offsetDelta(), "timestamp", batch.timestamp()));
            entries.add(row);
        }
        return entries;
    }
}
