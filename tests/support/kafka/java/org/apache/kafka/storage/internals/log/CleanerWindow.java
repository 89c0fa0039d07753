package org.apache.kafka.storage.internals.log;

import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;

/** Stands in Kafka's package to see what it keeps to itself there: the cleanable range of a log and a cleaner's statistics. */
public final class CleanerWindow {
    private CleanerWindow() { }

    public record Range(long firstDirtyOffset, long firstUncleanableOffset) { }

    public static Range cleanable(UnifiedLog log, Optional<Long> lastCleanOffset, long nowMs) throws IOException {
        LogCleanerManager.OffsetsToClean offsets = LogCleanerManager.cleanableOffsets(log, lastCleanOffset, nowMs);
        return new Range(offsets.firstDirtyOffset(), offsets.firstUncleanableDirtyOffset());
    }

    public static Map<String, Object> statistics(CleanerStats stats) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("bytesRead", stats.bytesRead);
        fields.put("bytesWritten", stats.bytesWritten);
        fields.put("mapBytesRead", stats.mapBytesRead);
        fields.put("mapMessagesRead", stats.mapMessagesRead());
        fields.put("messagesRead", stats.messagesRead);
        fields.put("invalidMessagesRead", stats.invalidMessagesRead);
        fields.put("messagesWritten", stats.messagesWritten);
        fields.put("bufferUtilization", stats.bufferUtilization);
        return fields;
    }
}
