// Reads by kafkajs, with codecs of packages, and of Node for zstd.
import { promisify } from "node:util";
import zlib from "node:zlib";
import kafkajs from "kafkajs";
import SnappyCodec from "kafkajs-snappy";
import lz4 from "lz4js";
import { asked, flush, show } from "./rows.mjs";

const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = kafkajs;
const unsupported = async () => { throw new Error("this reader does not write"); };
CompressionCodecs[CompressionTypes.Snappy] = SnappyCodec;
CompressionCodecs[CompressionTypes.LZ4] = () => ({ compress: unsupported, decompress: async (data) => Buffer.from(lz4.decompress(data)) });
CompressionCodecs[CompressionTypes.ZSTD] = () => ({ compress: unsupported, decompress: promisify(zlib.zstdDecompress) });

const kafka = new Kafka({ brokers: [asked.bootstrap], logLevel: logLevel.ERROR });
const consumer = kafka.consumer({ groupId: asked.group, readUncommitted: !asked.committed, maxWaitTimeInMs: 200 });
await consumer.connect();
await consumer.subscribe({ topics: asked.topics, fromBeginning: true });
const ends = new Map();
let left = asked.count;
await new Promise((done) => consumer.run({
  autoCommit: false,
  eachMessage: async ({ topic, partition, message }) => {
    if (left <= 0) return;
    const headers = Object.entries(message.headers ?? {}).flatMap(([name, data]) => (Array.isArray(data) ? data : [data]).map((each) => [name, each]));
    show(topic, partition, message.offset, message.timestamp, message.key, message.value, headers);
    ends.set(`${topic} ${partition}`, { topic, partition, offset: String(BigInt(message.offset) + 1n) });
    left -= 1;
    if (left === 0) done();
  },
}));
await consumer.commitOffsets([...ends.values()]);
await flush();
await consumer.disconnect();
