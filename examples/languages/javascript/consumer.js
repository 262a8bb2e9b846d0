// Ships each order once, with KafkaJS and pg.
//
//     BROKERS=localhost:9092 DATABASE_URL=postgres://app@localhost/app node consumer.js GROUP [COUNT]
//
// It ends after COUNT records, or runs until it is interrupted.
import { Kafka, logLevel } from "kafkajs";
import pg from "pg";

// position returns the record's place in the order of commits, which compares.
function position(headers) {
  const [high, low] = headers["cdc-lsn"].toString().split("/");
  return { lsn: (BigInt("0x" + high) << 32n) | BigInt("0x" + low), seq: Number(headers["cdc-seq"]) };
}

async function handle(db, consumer, { key, headers }) {
  const { lsn, seq } = position(headers);
  await db.query("BEGIN");
  try {
    const first = await db.query(
      "INSERT INTO handled_events (consumer, event_id) VALUES ($1, $2) ON CONFLICT DO NOTHING", [consumer, headers.id.toString()]);
    if (first.rowCount > 0) {
      await db.query("INSERT INTO shipments (consumer, order_id, event, lsn, seq) VALUES ($1, $2, $3, $4, $5)",
        [consumer, key.toString(), headers.eventType.toString(), lsn.toString(), seq]);
    }
    await db.query("COMMIT");
  } catch (err) {
    await db.query("ROLLBACK");
    throw err; // KafkaJS delivers the record again
  }
}

const [group, count = Infinity] = process.argv.slice(2);
const kafka = new Kafka({ brokers: process.env.BROKERS.split(","), logLevel: logLevel.ERROR });
const db = new pg.Client(process.env.DATABASE_URL);
await db.connect();
const consumer = kafka.consumer({ groupId: group });
await consumer.connect();
await consumer.subscribe({ topic: "outbox.event.order", fromBeginning: true });
let seen = 0;
await new Promise((resolve, reject) => {
  consumer.on(consumer.events.CRASH, ({ payload }) => payload.restart || reject(payload.error));
  consumer.run({
    autoCommit: false,
    eachMessage: async ({ topic, partition, message }) => {
      await handle(db, "javascript", message);
      // After the transaction, never before.
      await consumer.commitOffsets([{ topic, partition, offset: (BigInt(message.offset) + 1n).toString() }]);
      if (++seen >= count) resolve();
    },
  }).catch(reject);
});
await consumer.disconnect();
await db.end();
