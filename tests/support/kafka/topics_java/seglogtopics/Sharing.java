package seglogtopics;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A member of a share group. BOOTSTRAP TOPIC GROUP busy SEED: makes the group begin at the earliest record, and accepts
 * or releases what comes until it is killed. BOOTSTRAP TOPIC GROUP rest COUNT: accepts and prints the values that come,
 * until COUNT of them were "end" and nothing more comes.
 */
public final class Sharing {
    private static final Duration POLL = Duration.ofSeconds(2);

    private Sharing() {}

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0], topic = arguments[1], group = arguments[2];
        boolean busy = arguments[3].equals("busy");
        long number = Long.parseLong(arguments[4]);
        if (busy) beginAtTheEarliest(bootstrap, group);
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "group.id", group,
            "share.acknowledgement.mode", "explicit", "share.acquire.mode", "record_limit", "max.poll.records", busy ? 5 : 100);
        try (KafkaShareConsumer<byte[], byte[]> member =
                new KafkaShareConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            member.subscribe(List.of(topic));
            if (busy) work(member, new Random(number));
            else takeTheRest(member, number);
        }
    }

    private static void work(KafkaShareConsumer<byte[], byte[]> member, Random chance) {
        boolean begun = false;
        while (true) {
            int came = 0;
            for (ConsumerRecord<byte[], byte[]> record : member.poll(POLL)) {
                boolean done = record.deliveryCount().orElse((short) 1) > 2 || chance.nextInt(4) > 0;
                member.acknowledge(record, done ? AcknowledgeType.ACCEPT : AcknowledgeType.RELEASE);
                came++;
            }
            member.commitSync();
            if (came > 0 && !begun) System.out.println("begun");
            begun |= came > 0;
        }
    }

    private static void takeTheRest(KafkaShareConsumer<byte[], byte[]> member, long ends) {
        int came = -1;
        while (ends > 0 || came != 0) {
            came = 0;
            for (ConsumerRecord<byte[], byte[]> record : member.poll(POLL)) {
                String value = new String(record.value(), StandardCharsets.UTF_8);
                if (value.equals("end")) ends--;
                else System.out.println(value);
                member.acknowledge(record, AcknowledgeType.ACCEPT);
                came++;
            }
            member.commitSync();
        }
    }

    private static void beginAtTheEarliest(String bootstrap, String group) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            ConfigEntry entry = new ConfigEntry("share.auto.offset.reset", "earliest");
            admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.GROUP, group),
                List.of(new AlterConfigOp(entry, AlterConfigOp.OpType.SET)))).all().get();
        }
    }
}
