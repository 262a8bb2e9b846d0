#!/bin/sh
# github.com/twmb/franz-go 1.22.3 (kadm 1.20.0), Apache Kafka 4.4.0, kafka-python 3.0.12
#
# A consumer group of franz-go under read committed that has read all there is to
# read has a lag for ever: 22 behind an aborted transaction of 20 records. The same
# reading by kafka-python ends with a lag of 0.
#
# The log is one committed record, its marker, 20 aborted records, their marker: 23
# offsets. franz-go commits the offset behind the last record that it handed out
# (1); it has fetched past the rest, and polls that bring nothing change nothing.
# kafka-python commits its position, which passes over what it left out (23).
#
# A lag is the end of the log less what the group has committed, and both groups
# have finished. An alert on lag, or a job that waits for lag 0, works with one
# client and not with the other, on the same topic.
#
# Needs Java 17, Maven, Python 3 with pip, Go 1.26.
. "$(dirname "$0")/lib.sh"

kafka 4.4.0
python_with kafka-python==3.0.12

cat >main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	client, err := kgo.NewClient(kgo.SeedBrokers(os.Getenv("BROKER")), kgo.ConsumerGroup("franz-go"),
		kgo.ConsumeTopics("t"), kgo.DisableAutoCommit(), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		panic(err)
	}
	for read, end := 0, time.Now().Add(10*time.Second); time.Now().Before(end) || read == 0; {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		read += client.PollFetches(ctx).NumRecords()
		cancel()
		if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
			panic(err)
		}
	}
	lags, err := kadm.NewClient(client).Lag(context.Background(), "franz-go", "kafka-python")
	if err != nil {
		panic(err)
	}
	for group, expected := range map[string]int64{"franz-go": 22, "kafka-python": 0} {
		lag, _ := lags[group].Lag.Lookup("t", 0)
		fmt.Printf("%s: committed %d, end %d, lag %d\n", group, lag.Commit.At, lag.End.Offset, lag.Lag)
		if lag.End.Offset != 23 || lag.Lag != expected {
			defer os.Exit(1)
		}
	}
}
GO

python3 - <<'PYTHON'
import os, time
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

broker = os.environ["BROKER"]
KafkaAdminClient(bootstrap_servers=broker).create_topics([NewTopic("t", 1, 1)])
producer = KafkaProducer(bootstrap_servers=broker, transactional_id="x")
producer.init_transactions()
producer.begin_transaction()
producer.send("t", b"committed").get(30)
producer.commit_transaction()
producer.begin_transaction()
for _ in range(20):
    producer.send("t", b"aborted").get(30)
producer.abort_transaction()

consumer = KafkaConsumer("t", bootstrap_servers=broker, group_id="kafka-python", enable_auto_commit=False,
                         isolation_level="read_committed", auto_offset_reset="earliest")
read, end = 0, time.monotonic() + 10
while time.monotonic() < end or not read:
    read += sum(map(len, consumer.poll(1000).values()))
    if read:
        consumer.commit()
PYTHON

go_with github.com/twmb/franz-go@v1.22.3 github.com/twmb/franz-go/pkg/kadm@v1.20.0
go run .
