"""Reads records made by the connector with confluent-kafka's deserializer, and writes them again.

Each line of standard input is a topic, a record's value in hexadecimal digits, and the JSON
payload of the row. The arguments are the address of the schema registry, the descriptors of
the schema's files in base64, the name of the message, and a topic: the messages are also
written to it by a schema that the serializer registers, and printed in hexadecimal digits.
"""

import base64
import sys

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

url, files, name, other = sys.argv[1:]
client = SchemaRegistryClient({"url": url})
pool = descriptor_pool.DescriptorPool()
for file in descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(files)).file:
    pool.Add(file)
message = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
read = ProtobufDeserializer(message, {"use.deprecated.format": False})
# By the connector's schema it cannot write: it takes descriptors only, which Apicurio 2.6 does
# not make of a text (format=serialized).
again = ProtobufSerializer(message, client, {"auto.register.schemas": True})

for line in sys.stdin:
    topic, digits, payload = line.rstrip("\n").split("\t")
    data, context = bytes.fromhex(digits), SerializationContext(topic, MessageField.VALUE)
    value = read(data, context)
    if value != json_format.Parse(payload, message(), descriptor_pool=pool):
        sys.exit(f"{payload}: read as {value}")
    written = again(value, SerializationContext(other, MessageField.VALUE))
    if written[5:] != data[5:]:  # behind the schema's number
        sys.exit(f"{payload}: {digits} is written as {written.hex()}")
    print(written.hex())
