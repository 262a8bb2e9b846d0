"""Reads records made by the connector with confluent-kafka's deserializer, and writes them again.

Each line of standard input is a topic, a record's value in hexadecimal digits, and the JSON
payload of the row. The first argument is the address of the schema registry.
"""

import json
import sys

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

client = SchemaRegistryClient({"url": sys.argv[1]})
read = JSONDeserializer(None, schema_registry_client=client)
writers = {}

records = 0
for line in sys.stdin:
    topic, digits, payload = line.rstrip("\n").split("\t")
    data, context = bytes.fromhex(digits), SerializationContext(topic, MessageField.VALUE)
    value = read(data, context)
    if value != json.loads(payload):
        sys.exit(f"{payload}: read as {value}")
    if topic not in writers:
        schema = client.get_latest_version(topic + "-value").schema
        writers[topic] = JSONSerializer(schema, client, conf={"auto.register.schemas": False, "use.latest.version": True},
                                        json_encode=lambda v: json.dumps(v, separators=(",", ":"), ensure_ascii=False))
    again = writers[topic](value, context)
    if again != data:
        sys.exit(f"{payload}: {digits} is written as {again.hex()}")
    records += 1
print(records)
