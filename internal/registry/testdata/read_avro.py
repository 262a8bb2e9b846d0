"""Reads records made by the connector with confluent-kafka's deserializer, and writes them again.

Each line of standard input is a topic, a record's value in hexadecimal digits, and the JSON
payload of the row. The first argument is the address of the schema registry.
"""

import datetime
import decimal
import json
import sys
import uuid

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

client = SchemaRegistryClient({"url": sys.argv[1]})
read = AvroDeserializer(client)
writers = {}


def plain(value):
    """The value as the payload has it."""
    if isinstance(value, dict):
        return {name: plain(member) for name, member in value.items()}
    if isinstance(value, list):
        return [plain(element) for element in value]
    if isinstance(value, (decimal.Decimal, uuid.UUID)):
        return str(value)
    if isinstance(value, datetime.datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, datetime.date):
        return value.isoformat()
    return value


records = 0
for line in sys.stdin:
    topic, digits, payload = line.rstrip("\n").split("\t")
    data, context = bytes.fromhex(digits), SerializationContext(topic, MessageField.VALUE)
    value = read(data, context)
    if plain(value) != json.loads(payload):
        sys.exit(f"{payload}: read as {value}")
    if topic not in writers:
        schema = client.get_latest_version(topic + "-value").schema
        writers[topic] = AvroSerializer(client, schema.schema_str, conf={"auto.register.schemas": False})
    again = writers[topic](value, context)
    if again != data:
        sys.exit(f"{payload}: {digits} is written as {again.hex()}")
    records += 1
print(records)
