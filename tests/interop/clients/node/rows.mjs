// What the readers share: their arguments, and records as lines of JSON.
const [bootstrap, topics, isolation, group, count] = process.argv.slice(2);
export const asked = { bootstrap, topics: topics.split(","), committed: isolation === "read_committed", group, count: Number(count) };

const lines = [];
const text = (data) => (data === null || data === undefined ? null : Buffer.from(data).toString("base64"));

export function show(topic, partition, offset, stamp, key, value, headers) {
  const shown = headers.map(([name, data]) => [name, text(data)]);
  lines.push(JSON.stringify([topic, partition, Number(offset), Number(stamp), text(key), text(value), shown]));
}

export const flush = () => new Promise((done) => process.stdout.write(lines.map((line) => line + "\n").join(""), done));

setTimeout(() => { console.error("records did not come"); process.exit(1); }, 90_000).unref();
