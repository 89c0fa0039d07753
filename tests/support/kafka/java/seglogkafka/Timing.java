package seglogkafka;

import org.apache.kafka.common.record.internal.FileLogInputStream;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.*; // 4.4 has moved classes of this package to `internals`
import org.apache.kafka.common.utils.internals.*;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.CleanerWindow;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.internals.utils.Throttler;

import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Optional;
import java.util.function.Consumer;
import java.util.stream.Stream;

/**
 * How long Kafka's own classes take, for `tests/benchmarks`: each kind of work several times in this JVM after a warm-up.
 *
 * Reading is measured as Kafka's tools read (FileRecords) and as its clients and cleaner do (a memory buffer filled 1 MiB
 * at a time); the faster of the two is what a comparison should be held against.
 */
final class Timing {
    private interface Work { long nanoseconds() throws Exception; }

    private static volatile long sink; // keeps the optimiser from dropping reads whose result nobody wants

    private Timing() { }

    static Object measure(Options options) throws Exception {
        File directory = options.directory();
        String what = options.text("what", "");
        int warmups = options.integer("warmups", 2), runs = options.integer("runs", 5);
        Work work = switch (what) {
            case "verify_file" -> () -> fromFiles(directory, batch -> batch.ensureValid());
            case "verify_memory" -> () -> fromMemory(directory, batch -> batch.ensureValid());
            case "records_file" -> () -> fromFiles(directory, Timing::touch);
            case "records_memory" -> () -> fromMemory(directory, Timing::touch);
            case "append" -> appending(options, directory);
            case "clean" -> cleaning(options, directory);
            default -> throw new Options.Refused("nothing to measure is called " + what);
        };
        options.finish();
        for (int i = 0; i < warmups; i++) work.nanoseconds();
        List<Double> seconds = new ArrayList<>();
        for (int i = 0; i < runs; i++) seconds.add(work.nanoseconds() / 1e9);
        return Answers.object("what", what, "seconds", seconds);
    }

    private static List<File> logs(File directory) {
        File[] logs = directory.listFiles((parent, name) -> name.endsWith(".log"));
        Arrays.sort(logs);
        return List.of(logs);
    }

    private static final BufferSupplier BUFFERS = BufferSupplier.create();

    private static void touch(org.apache.kafka.common.record.internal.RecordBatch batch) {
        long sum = sink;
        try (CloseableIterator<Record> records = batch.streamingIterator(BUFFERS)) {
            while (records.hasNext()) {
                Record record = records.next();
                sum += record.offset() ^ record.timestamp();
                if (record.hasKey()) sum += record.key().remaining();
                if (record.hasValue()) sum += record.value().remaining();
            }
        }
        sink = sum;
    }

    private static long fromFiles(File directory, Consumer<org.apache.kafka.common.record.internal.RecordBatch> each) throws IOException {
        long start = System.nanoTime();
        for (File log : logs(directory)) {
            FileRecords records = FileRecords.open(log, false);
            for (FileLogInputStream.FileChannelRecordBatch batch : records.batches()) each.accept(batch);
            records.channel().close();
        }
        return System.nanoTime() - start;
    }

    private static long fromMemory(File directory, Consumer<org.apache.kafka.common.record.internal.RecordBatch> each) throws IOException {
        long start = System.nanoTime();
        ByteBuffer buffer = ByteBuffer.allocate(1 << 20);
        for (File log : logs(directory)) {
            FileRecords records = FileRecords.open(log, false);
            for (int position = 0, before = -1; position < records.sizeInBytes() && position != before; ) {
                before = position;
                buffer.clear();
                records.readInto(buffer, position);
                for (MutableRecordBatch batch : MemoryRecords.readableRecords(buffer).batches()) {
                    each.accept(batch);
                    position += batch.sizeInBytes();
                }
            }
            records.channel().close();
        }
        return System.nanoTime() - start;
    }

    /**
     * The leader path, one batch a call as a producer's request comes, without the final flush. A broker's scheduler flushes
     * each segment that was rolled, with its snapshot; "flushed" counts that.
     */
    private static Work appending(Options options, File directory) throws Exception {
        boolean flushed = options.flag("flushed", true);
        LogConfig config = OpenLog.config(options, "delete");
        File target = options.file("work");
        List<byte[]> batches = new ArrayList<>();
        for (File log : logs(directory)) {
            FileRecords records = FileRecords.open(log, false);
            for (FileLogInputStream.FileChannelRecordBatch batch : records.batches()) {
                ByteBuffer copy = ByteBuffer.allocate(batch.sizeInBytes());
                batch.writeTo(copy);
                copy.putLong(0, 0L); // a producer's batches begin at offset 0
                batches.add(copy.array());
            }
            records.channel().close();
        }
        return () -> {
            remove(target.toPath());
            Files.createDirectories(target.toPath());
            List<MemoryRecords> requests = batches.stream().map(bytes -> MemoryRecords.readableRecords(ByteBuffer.wrap(bytes.clone()))).toList();
            try (OpenLog opened = OpenLog.open(target, config, new FrozenClock(System.currentTimeMillis()), 0, 0, true, Optional.empty(), 86_400_000)) {
                RequestLocal local = RequestLocal.withThreadConfinedCaching();
                long start = System.nanoTime();
                for (MemoryRecords request : requests)
                    opened.log.appendAsLeader(request, 0, AppendOrigin.CLIENT, local, VerificationGuard.SENTINEL, (short) -1);
                if (flushed) opened.scheduler.runAll();
                return System.nanoTime() - start;
            } finally {
                remove(target.toPath());
            }
        };
    }

    /** Cleaner.doClean alone, its fsyncs with it, on hard links of the log; like a cleaner thread, one cleaner and one map serve all runs. */
    private static Work cleaning(Options options, File directory) throws Exception {
        LogConfig config = OpenLog.config(options, "compact");
        File target = options.file("work");
        SkimpyOffsetMap map = new SkimpyOffsetMap(Math.toIntExact(options.number("dedupe_buffer_bytes", 128L << 20)), "MD5");
        Cleaner cleaner = new Cleaner(0, map, 256 << 10, (1 << 20) + 12, 0.9, new Throttler(Double.MAX_VALUE, 300, "cleaner-io", "bytes", Time.SYSTEM),
            Time.SYSTEM, partition -> { });
        long nowMs = options.number("now_ms", System.currentTimeMillis());
        return () -> {
            remove(target.toPath());
            Files.createDirectories(target.toPath());
            for (File file : directory.listFiles())
                if (file.getName().endsWith(".log")) Files.createLink(target.toPath().resolve(file.getName()), file.toPath());
                else Files.copy(file.toPath(), target.toPath().resolve(file.getName()));
            try (OpenLog opened = OpenLog.open(target, config, new FrozenClock(nowMs), 0, 0, true, Optional.empty(), 86_400_000)) {
                opened.log.updateHighWatermark(opened.log.logEndOffset());
                CleanerWindow.Range range = CleanerWindow.cleanable(opened.log, Optional.empty(), nowMs);
                LogToClean work = new LogToClean(opened.log, range.firstDirtyOffset(), range.firstUncleanableOffset(), false);
                System.gc();
                long start = System.nanoTime();
                cleaner.doClean(work, nowMs);
                return System.nanoTime() - start;
            } finally {
                remove(target.toPath());
            }
        };
    }

    private static void remove(Path folder) throws IOException {
        if (!Files.exists(folder)) return;
        try (Stream<Path> all = Files.walk(folder)) {
            for (Path path : all.sorted(Comparator.reverseOrder()).toList()) Files.delete(path);
        }
    }
}
