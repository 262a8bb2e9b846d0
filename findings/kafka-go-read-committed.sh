#!/bin/sh
# github.com/segmentio/kafka-go 0.4.51, Apache Kafka 4.4.0
#
# A kafka.Reader with IsolationLevel: kafka.ReadCommitted reads records of aborted
# transactions, and hands out the transaction markers as messages, too.
#
# Of a log with one aborted and two committed transactions of a record each, the
# reader returns six messages: the three records, and three markers with a key of
# four bytes, in which the fourth tells abort (0) from commit (1), and a value of
# six zero bytes.
#
# The option is documented to make only non-transactional and committed records
# visible, and it is sent in the fetch. But the broker only holds back what is still
# open: to leave out aborted records and markers is the client's part.
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
KafkaAdminClient(bootstrap_servers=broker).create_topics([NewTopic("t", 1, 1)])
producer = KafkaProducer(bootstrap_servers=broker, transactional_id="x")
producer.init_transactions()
for value in "aborted", "committed", "last":
    producer.begin_transaction()
    producer.send("t", value.encode()).get(30)
    if value == "aborted":
        producer.abort_transaction()
    else:
        producer.commit_transaction()
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
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{os.Getenv("BROKER")}, Topic: "t", IsolationLevel: kafka.ReadCommitted,
	})
	for offset := range 6 {
		m, err := reader.ReadMessage(ctx)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Printf("offset %d: key %x, value %q\n", m.Offset, m.Key, m.Value)
		marker := len(m.Key) == 4 && string(m.Value) == "\x00\x00\x00\x00\x00\x00"
		if m.Offset != int64(offset) || marker != (offset%2 == 1) || offset == 0 && string(m.Value) != "aborted" {
			os.Exit(1)
		}
	}
}
GO
go_with github.com/segmentio/kafka-go@v0.4.51
go run .
