#!/usr/bin/env bash
# Kafka 4.4.0: kafka-consumer-groups and kafka-streams-groups exit with 0 when they have not reset an active group.
#
# Expected: --reset-offsets --execute did not do what was asked for, so the exit code is not 0: a script goes on if it
# is 0, for instance to start an application that is to read everything again. kafka-share-groups ends with 1 then.
# Seen: for a group with members, both print "Error: Assignments can only be reset if the group ... is inactive", change
# nothing, and exit with 0.
#
# A broker of one node, with a member of each kind of group. Java 17 or newer and Maven are needed.
set -euo pipefail
work="$(mktemp -d)"
trap 'kill "${members:-}" "${broker:-}" 2> "$work/ended" || true; wait || true; rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q confluent-kafka==2.16.1
cd "$work"
cat > pom.xml <<'END'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>finding</groupId><artifactId>finding</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>4.4.0</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>4.4.0</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-streams</artifactId><version>4.4.0</version></dependency>
  </dependencies>
</project>
END
mvn -q -B dependency:copy-dependencies -DoutputDirectory=lib
read -r port controller < <(python3 -c '
import socket
with socket.socket() as one, socket.socket() as other:
    for each in (one, other): each.bind(("127.0.0.1", 0))
    print(one.getsockname()[1], other.getsockname()[1])')
cat > server.properties <<END
process.roles=broker,controller
node.id=1
log.dirs=$work/logs
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$controller
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:$controller
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
END
kafka() { java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp 'lib/*' "$@"; }
kafka kafka.tools.StorageTool format -t AAAAAAAAAAAAAAAAAAAAAQ -c server.properties > format.log 2>&1
java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp 'lib/*' kafka.Kafka server.properties > broker.log 2>&1 &
broker=$!
cat > Members.java <<'END'
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.streams.*;

public class Members {
    public static void main(String[] given) throws Exception {
        Properties streams = new Properties();
        streams.putAll(Map.of("bootstrap.servers", given[0], "application.id", "streams", "group.protocol", "streams",
            "state.dir", given[1], "default.key.serde", Serdes.ByteArraySerde.class,
            "default.value.serde", Serdes.ByteArraySerde.class));
        StreamsBuilder topology = new StreamsBuilder();
        topology.stream("orders").foreach((key, value) -> { });
        new KafkaStreams(topology.build(), streams).start();
        Map<String, Object> settings = Map.of("bootstrap.servers", given[0],
            "key.deserializer", ByteArrayDeserializer.class, "value.deserializer", ByteArrayDeserializer.class);
        Map<String, Object> consumers = new HashMap<>(settings), sharers = new HashMap<>(settings);
        consumers.put("group.id", "consumers");
        sharers.put("group.id", "sharers");
        var consumer = new KafkaConsumer<byte[], byte[]>(consumers);
        var sharer = new KafkaShareConsumer<byte[], byte[]>(sharers);
        consumer.subscribe(List.of("orders"));
        sharer.subscribe(List.of("orders"));
        while (true) {
            consumer.poll(Duration.ofMillis(100));
            sharer.poll(Duration.ofMillis(100));
        }
    }
}
END
venv/bin/python - <<END
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

bootstrap = {"bootstrap.servers": "127.0.0.1:$port", "log_level": 0}
admin = AdminClient(bootstrap)
admin.create_topics([NewTopic("orders", 1, 1)], operation_timeout=60)["orders"].result(60)
producer = Producer(bootstrap)
producer.produce("orders", b"value")
assert producer.flush(60) == 0
END
java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp 'lib/*' Members.java "127.0.0.1:$port" "$work/state" \
    > members.log 2>&1 &
members=$!
commands=org.apache.kafka.tools
declare -A tools=([consumers]=$commands.consumer.group.ConsumerGroupCommand
    [sharers]=$commands.consumer.group.ShareGroupCommand [streams]=$commands.streams.StreamsGroupCommand)
tool() { kafka "${tools[$1]}" --bootstrap-server "127.0.0.1:$port" --timeout 60000 --group "$@"; }
still=0
for group in consumers sharers streams; do
    topic=(--topic orders)
    [ "$group" != streams ] || topic=(--input-topic orders)
    for _ in $(seq 60); do
        tool "$group" --describe --state > state.txt 2>&1 || true
        ! grep -q Stable state.txt || break
        sleep 1
    done
    code=0
    tool "$group" --reset-offsets "${topic[@]}" --to-earliest --execute > said.txt 2>&1 || code=$?
    echo "$group, $(grep -m 1 -o Stable state.txt): exit code $code, $(grep -v SLF4J said.txt | grep -m 1 .)"
    case "$group" in
        sharers) [ "$code" -ne 0 ] || still=1 ;;
        *) [ "$code" -eq 0 ] && grep -q "^Error: .* is inactive" said.txt || still=1 ;;
    esac
done
exit "$still"
