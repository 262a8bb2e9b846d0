"""Reads CloudEvents of a topic, and prints each as a line of JSON: read.py BROKERS TOPIC COUNT."""
import base64
import datetime
import json
import sys

from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka_event
from confluent_kafka import Consumer

brokers, topic, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
consumer = Consumer({"bootstrap.servers": brokers, "group.id": "python-" + topic, "auto.offset.reset": "earliest"})
consumer.subscribe([topic])


def text(value):
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return str(value).lower() if isinstance(value, bool) else str(value)


while count > 0:
    record = consumer.poll(1.0)
    if record is None:
        continue
    if record.error():
        sys.exit(str(record.error()))
    event = from_kafka_event(KafkaMessage(headers=dict(record.headers()), key=record.key(), value=record.value()))
    data = event.get_data()
    if isinstance(data, (bytes, bytearray)):
        plain = event.get_attributes()["datacontenttype"].startswith("text/")
        data = data.decode() if plain else base64.b64encode(data).decode()
    print(json.dumps({"attributes": {k: text(v) for k, v in event.get_attributes().items() if v is not None}, "data": data}))
    count -= 1
consumer.close()
