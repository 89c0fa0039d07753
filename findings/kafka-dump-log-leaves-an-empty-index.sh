#!/usr/bin/env bash
# Kafka 4.4.0: looking at a time index whose offset index is missing makes an empty offset index, which a broker
# keeps.
#
# Expected: kafka-dump-log only reads. A segment without its offset index gets a new one when a broker starts
# ("recovering segment and rebuilding index files"), whether somebody has looked at it before or not.
# Seen: the tool opens the offset index beside the time index for writing, and so creates it, with 0 bytes; then it
# fails to map it. At its next start the broker finds an index and makes no other: each read of that segment begins at
# its first byte. Without the look at it, the same broker makes the index anew.
#
# A broker of one node writes the log, is stopped, and starts again twice. Java 17 or newer and Maven are needed.
set -euo pipefail
work="$(mktemp -d)"
trap 'kill ${broker:-} 2> "$work/ended" || true; wait || true; rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q confluent-kafka==2.16.1
cd "$work"
cat > pom.xml <<'END'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>finding</groupId><artifactId>finding</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>4.4.0</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>4.4.0</version></dependency>
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
END
kafka() { java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp 'lib/*' "$@"; }
kafka kafka.tools.StorageTool format -t AAAAAAAAAAAAAAAAAAAAAQ -c server.properties > format.log 2>&1
start() {
    java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp 'lib/*' kafka.Kafka server.properties > broker.log 2>&1 &
    broker=$!
}
stop() {
    kill "$broker"
    wait "$broker" || true
    broker=
}
records() { # the number of records that are there, once the broker answers; with "write" after writing them
    venv/bin/python - "$@" <<END
import sys

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

bootstrap = {"bootstrap.servers": "127.0.0.1:$port", "log_level": 0}
if sys.argv[1:]:
    topic, admin = NewTopic("t", 1, 1, config={"segment.bytes": "1048576"}), AdminClient(bootstrap)
    admin.create_topics([topic], operation_timeout=60)["t"].result(60)
    producer = Producer(bootstrap)
    for number in range(3000):
        producer.produce("t", bytes(1000), timestamp=1_700_000_000_000 + number)
        if number % 50 == 49:
            assert producer.flush(60) == 0
print(Consumer({**bootstrap, "group.id": "g"}).get_watermark_offsets(TopicPartition("t", 0), 60)[1])
END
}
segment=logs/t-0/00000000000000000000
start
written=$(records write)
stop
size() { stat -c %s "$1"; }
first=$(size $segment.index)
rm $segment.index
start
records > again.txt
stop
anew=$(size $segment.index)
rm $segment.index
code=0
kafka org.apache.kafka.tools.DumpLogSegments --files $segment.timeindex > said.txt 2>&1 || code=$?
made=$(size $segment.index)
start
records > again.txt
stop
kept=$(size $segment.index)
echo "Kafka 4.4.0, $written records: the index has $first bytes; removed, $anew after a start;"
echo "removed, and $made when kafka-dump-log has looked at the time index and ended with $code; $kept after a start"
[ "$first" -gt 0 ] && [ "$anew" -gt 0 ] && [ "$made" -eq 0 ] && [ "$kept" -eq 0 ]
