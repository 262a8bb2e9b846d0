#!/bin/sh
# Apache Kafka 4.4.0, kafka-python 3.0.12
#
# The marker at the end of a transaction counts as a record of the present, however old
# the transaction's records are. A record with yesterday's timestamp under a retention of
# an hour is deleted at the next check; the same record, written in a transaction, stays,
# for an hour from its commit.
#
# And a search by time finds the marker: for a time after the last record the broker
# answers with the marker's offset, where without a transaction it answers that there is
# no such record. The newest record of a partition (OffsetSpec.MAX_TIMESTAMP) is the
# marker, too. No consumer ever gets a record at this offset.
#
# Retention goes by the timestamps of records, which is why old ones copied to a topic
# vanish at once; and a marker is no record to anybody who reads. So one would expect
# the same of both topics.
#
# Needs Java 17, Maven and Python 3 with pip. Takes a minute.
. "$(dirname "$0")/lib.sh"

kafka 4.4.0 log.retention.check.interval.ms=500
python_with kafka-python==3.0.12

python3 - <<'PYTHON'
import os, sys, time
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic, OffsetSpec

broker = os.environ["BROKER"]
plain, transactional = partitions = [TopicPartition(topic, 0) for topic in ("plain", "transactional")]
admin = KafkaAdminClient(bootstrap_servers=broker)
admin.create_topics([NewTopic(p.topic, 1, 1, topic_configs={"retention.ms": "-1"}) for p in partitions])
consumer = KafkaConsumer(bootstrap_servers=broker, isolation_level="read_committed", auto_offset_reset="earliest")
yesterday = int(time.time() - 86400) * 1000


def wait(condition):
    end = time.monotonic() + 120
    while not condition():
        if time.monotonic() > end:
            sys.exit("gave up")
        time.sleep(0.2)


def begins_at(offset):
    return lambda: consumer.beginning_offsets([plain])[plain] == offset


producer = KafkaProducer(bootstrap_servers=broker)
producer.send("plain", b"old", timestamp_ms=yesterday).get(30)
in_transaction = KafkaProducer(bootstrap_servers=broker, transactional_id="x")
in_transaction.init_transactions()
in_transaction.begin_transaction()
in_transaction.send("transactional", b"old", timestamp_ms=yesterday).get(30)
in_transaction.commit_transaction()
wait(lambda: consumer.end_offsets(partitions) == {plain: 1, transactional: 2})

later = consumer.offsets_for_times({p: yesterday + 1 for p in partitions})
newest = admin.list_partition_offsets({p: OffsetSpec.MAX_TIMESTAMP for p in partitions})
for p in partitions:
    print(f"{p.topic}: later than the record: {later[p] and later[p].offset}, newest: {newest[p].offset}")

admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, p.topic, {"retention.ms": "3600000"}) for p in partitions])
wait(begins_at(1))
producer.send("plain", b"old", timestamp_ms=yesterday).get(30)
wait(begins_at(2))  # so that a whole check has passed in between
first = consumer.beginning_offsets(partitions)
consumer.assign([transactional])
read = [record.value for records in consumer.poll(30000).values() for record in records]
print(f"with a retention of an hour: plain begins at {first[plain]}, transactional at {first[transactional]} with {read}")
sys.exit(not (later[plain] is None and later[transactional].offset == 1
              and [newest[p].offset for p in partitions] == [0, 1]
              and first == {plain: 2, transactional: 0} and read == [b"old"]))
PYTHON
