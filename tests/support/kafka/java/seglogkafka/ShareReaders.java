package seglogkafka;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/**
 * Members of share groups: BOOTSTRAP TOPIC RESET (GROUP MARKS)… One member of each group reads the topic from where
 * RESET says (earliest, latest), acknowledges record by record as its marks say (a accept, r release, x reject),
 * a few records at a time, and leaves; after a + at the end of its marks it stays. "filled" is printed, and the members
 * that stay do so until standard input ends.
 */
public final class ShareReaders {
    private static final int RECORDS_OF_A_POLL = 3;
    private static final Duration LIMIT = Duration.ofSeconds(60);

    private ShareReaders() { }

    public static void main(String[] arguments) throws Exception {
        List<KafkaShareConsumer<byte[], byte[]>> staying = new ArrayList<>();
        for (int i = 3; i < arguments.length; i += 2) {
            startAt(arguments[0], arguments[i], arguments[2]);
            KafkaShareConsumer<byte[], byte[]> member = member(arguments[0], arguments[i]);
            member.subscribe(List.of(arguments[1]));
            acknowledge(member, arguments[i + 1].replace("+", ""));
            if (arguments[i + 1].endsWith("+")) staying.add(member);
            else member.close(LIMIT);
        }
        System.out.println("filled");
        while (System.in.read() >= 0) { }
        for (KafkaShareConsumer<byte[], byte[]> member : staying) member.close(LIMIT);
    }

    private static void startAt(String bootstrap, String group, String reset) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            ConfigEntry entry = new ConfigEntry("share.auto.offset.reset", reset);
            admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.GROUP, group),
                List.of(new AlterConfigOp(entry, AlterConfigOp.OpType.SET)))).all().get();
        }
    }

    private static KafkaShareConsumer<byte[], byte[]> member(String bootstrap, String group) {
        return new KafkaShareConsumer<>(Map.of("bootstrap.servers", bootstrap, "group.id", group, "client.id", "of-" + group,
            "share.acknowledgement.mode", "explicit", "share.acquire.mode", "record_limit",
            "max.poll.records", RECORDS_OF_A_POLL), new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** One mark a record; what was handed out beyond them is released. Without marks it waits until it is a member. */
    private static void acknowledge(KafkaShareConsumer<byte[], byte[]> member, String marks) {
        int done = 0;
        long end = System.nanoTime() + LIMIT.toNanos();
        do {
            for (ConsumerRecord<byte[], byte[]> record : member.poll(Duration.ofSeconds(marks.isEmpty() ? 3 : 1))) {
                member.acknowledge(record, done < marks.length() ? type(marks.charAt(done)) : AcknowledgeType.RELEASE);
                done++;
            }
            member.commitSync(LIMIT);
            if (System.nanoTime() > end) throw new IllegalStateException(done + " records came for " + marks);
        } while (done < marks.length());
    }

    private static AcknowledgeType type(char mark) {
        return switch (mark) {
            case 'a' -> AcknowledgeType.ACCEPT;
            case 'r' -> AcknowledgeType.RELEASE;
            case 'x' -> AcknowledgeType.REJECT;
            default -> throw new IllegalArgumentException("no mark: " + mark);
        };
    }
}
