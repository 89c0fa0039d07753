// Reads by @platformatic/kafka.
import { Consumer, FetchIsolationLevels, MessagesStreamFallbackModes, MessagesStreamModes } from "@platformatic/kafka";
import { asked, flush, show } from "./rows.mjs";

const consumer = new Consumer({ groupId: asked.group, clientId: "reader", bootstrapBrokers: [asked.bootstrap], autocommit: false });
const stream = await consumer.consume({
  topics: asked.topics,
  mode: MessagesStreamModes.COMMITTED,
  fallbackMode: MessagesStreamFallbackModes.EARLIEST,
  isolationLevel: asked.committed ? FetchIsolationLevels.READ_COMMITTED : FetchIsolationLevels.READ_UNCOMMITTED,
  maxWaitTime: 200,
  autocommit: false,
});
const ends = new Map();
let left = asked.count;
for await (const message of stream) {
  const { topic, partition, offset, timestamp, key, value } = message;
  const headers = [...message.headers.entries()].map(([name, data]) => [name.toString(), data]);
  show(topic, partition, offset, timestamp, key, value, headers);
  ends.set(`${topic} ${partition}`, { topic, partition, offset: offset + 1n, leaderEpoch: -1 });
  left -= 1;
  if (left === 0) break;
}
await consumer.commit({ offsets: [...ends.values()] });
await flush();
await consumer.close(true);
process.exit(0);
