#!/bin/sh
# Apache Kafka 4.4.0, kafka-python 3.0.12
#
# A topic with one replica and min.insync.replicas=2 is created without a word, and
# takes records with acks=all as if the setting were 1.
#
# The broker compares the in-sync replicas with the smaller of min.insync.replicas
# and the number of replicas. So the topic's described setting says 2, and each
# record is acknowledged by the one replica that there is.
#
# With acks=all a broker refuses a record (NOT_ENOUGH_REPLICAS) as long as fewer
# replicas than min.insync.replicas are in sync, and there never are two of one.
# One would guess that such a topic can never be written; or, from the
# acknowledgement, that two copies exist.
#
# Needs Java 17, Maven and Python 3 with pip.
. "$(dirname "$0")/lib.sh"

kafka 4.4.0
python_with kafka-python==3.0.12

python3 - <<'PYTHON'
import os, sys
from kafka import KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic

admin = KafkaAdminClient(bootstrap_servers=os.environ["BROKER"])
admin.create_topics([NewTopic("t", 1, 1, topic_configs={"min.insync.replicas": "2"})])
described = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, "t")])["topic"]["t"]
print("1 replica, min.insync.replicas =", described["min.insync.replicas"]["value"])
producer = KafkaProducer(bootstrap_servers=os.environ["BROKER"], acks="all", retries=0)
answer = producer.send("t", b"x").get(30)
print("acks=all: acknowledged at offset", answer.offset)
sys.exit(not (described["min.insync.replicas"]["value"] == "2" and answer.offset == 0))
PYTHON
