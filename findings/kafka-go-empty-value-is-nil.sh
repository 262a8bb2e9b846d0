#!/bin/sh
# github.com/segmentio/kafka-go 0.4.51, Apache Kafka 4.4.0, kafka-python 3.0.12
#
# A kafka.Reader hands out an empty value as nil, so that it looks like a tombstone. A
# program that copies messages to another topic makes a tombstone of it: in a compacted
# topic the key is deleted.
#
# A nil value, written by the same library, is null, and an empty slice is empty: the
# writer knows the difference. So does the library's Client.Fetch, which hands out nil
# for the tombstone only.
#
# Needs Java 17, Maven, Python 3 with pip, Go 1.26.
. "$(dirname "$0")/lib.sh"

kafka 4.4.0
python_with kafka-python==3.0.12

python3 - <<'PYTHON'
import os
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

broker = os.environ["BROKER"]
KafkaAdminClient(bootstrap_servers=broker).create_topics([NewTopic("original", 1, 1), NewTopic("copy", 1, 1)])
producer = KafkaProducer(bootstrap_servers=broker)
for value in b"", None:
    producer.send("original", value, b"key").get(30)
PYTHON

cat >main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/segmentio/kafka-go"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	broker := os.Getenv("BROKER")
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{broker}, Topic: "original"})
	writer := kafka.Writer{Addr: kafka.TCP(broker), Topic: "copy", RequiredAcks: kafka.RequireAll, BatchSize: 1}
	for range 2 {
		m, err := reader.ReadMessage(ctx)
		if err == nil {
			fmt.Printf("Reader: offset %d has a nil value: %t\n", m.Offset, m.Value == nil)
			err = writer.WriteMessages(ctx, kafka.Message{Key: m.Key, Value: m.Value})
		}
		if err != nil {
			panic(err)
		}
	}

	client := kafka.Client{Addr: kafka.TCP(broker)}
	fetched, err := client.Fetch(ctx, &kafka.FetchRequest{Topic: "original", MinBytes: 1, MaxBytes: 1 << 20, MaxWait: time.Minute})
	if err != nil {
		panic(err)
	}
	for offset := range int64(2) {
		record, err := fetched.Records.ReadRecord()
		if err != nil {
			panic(err)
		}
		fmt.Printf("Client.Fetch: offset %d has a nil value: %t\n", record.Offset, record.Value == nil)
		if record.Offset != offset || (record.Value == nil) != (offset == 1) {
			os.Exit(1)
		}
	}
}
GO
go_with github.com/segmentio/kafka-go@v0.4.51
go run .

python3 - <<'PYTHON'
import os, sys
from kafka import KafkaConsumer

values = {topic: [] for topic in ("original", "copy")}
for topic in values:
    for record in KafkaConsumer(topic, bootstrap_servers=os.environ["BROKER"], auto_offset_reset="earliest",
                                consumer_timeout_ms=60000):
        values[topic].append(record.value)
        if len(values[topic]) == 2:
            break
    print(topic, values[topic])
sys.exit(values != {"original": [b"", None], "copy": [None, None]})
PYTHON
