package org.apache.kafka.connect.mirror;

import java.util.function.BiConsumer;
import org.apache.kafka.common.TopicPartition;

/** Keys and values as MirrorMaker writes them; its methods are for its own package. */
public final class MirrorBytes {
    private MirrorBytes() {}

    public static void offsetSync(BiConsumer<byte[], byte[]> to, String topic, int partition, long up, long down) {
        OffsetSync sync = new OffsetSync(new TopicPartition(topic, partition), up, down);
        to.accept(sync.recordKey(), sync.recordValue());
    }

    public static void checkpoint(
            BiConsumer<byte[], byte[]> to, String group, String topic, int partition, long up, long down, String note) {
        Checkpoint point = new Checkpoint(group, new TopicPartition(topic, partition), up, down, note);
        to.accept(point.recordKey(), point.recordValue());
    }

    public static void heartbeat(BiConsumer<byte[], byte[]> to, String source, String target, long timestamp) {
        Heartbeat beat = new Heartbeat(source, target, timestamp);
        to.accept(beat.recordKey(), beat.recordValue());
    }
}
