#!/usr/bin/env bash
# confluent-kafka 2.16.1 (librdkafka) and Kafka's Java client 4.3.0: by default, a key goes to different partitions.
#
# Expected: one topic, one key, one partition, as the order of a key's records depends on it.
# Seen: librdkafka takes CRC-32 modulo partitions (consistent_random), the Java client murmur2. Where a program in
# Java and one with librdkafka write the same keys, most keys have records in two partitions, out of order and never
# compacted together. With partitioner=murmur2_random, librdkafka agrees for every key.
#
# librdkafka writes to its own mock brokers in this process, whose topics have four partitions. Java and Maven are
# needed.
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q confluent-kafka==2.16.1
cd "$work"
cat > pom.xml <<'END'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>finding</groupId><artifactId>finding</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId><version>4.3.0</version>
  </dependency></dependencies>
</project>
END
mvn -q -B dependency:copy-dependencies -DoutputDirectory=lib
cat > Partitions.java <<'END'
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;

public class Partitions {
    public static void main(String[] none) {
        for (int i = 0; i < 100; i++)
            System.out.println(BuiltInPartitioner.partitionForKey(("customer-" + i).getBytes(), 4));
    }
}
END
java -cp 'lib/*' Partitions.java > java.txt
venv/bin/python - <<'END'
import confluent_kafka

def partitions(**settings):
    producer = confluent_kafka.Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none", **settings})
    arrived = {}
    for number in range(100):
        key = f"customer-{number}"
        producer.produce("orders", b"value", key=key, on_delivery=lambda error, message: arrived.update(
            {message.key().decode(): message.partition() if error is None else None}))
    assert producer.flush(60) == 0
    return [arrived[f"customer-{number}"] for number in range(100)]

java = [int(line) for line in open("java.txt")]
default, murmur2 = partitions(), partitions(partitioner="murmur2_random")
apart = sum(ours != theirs for ours, theirs in zip(default, java))
print(f"confluent-kafka {confluent_kafka.version()}, librdkafka {confluent_kafka.libversion()[0]}")
print(f"of 100 keys, {apart} go elsewhere than with Java; with murmur2_random, {sum(a != b for a, b in zip(murmur2, java))}")
raise SystemExit(not (apart > 50 and murmur2 == java and None not in default))
END
