package kafkatest

import (
	"hash/crc32"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// Unverified lets a partition take records of a transaction unknown to the
// coordinator, as brokers before 3.6 did.
func Unverified() Option { return Setting("transaction.partition.verification.enable", "false") }

// Hang leaves a transaction unknown to all coordinators in partition 0 of the topic.
// Such a transaction never ends by itself (KIP-664). Its record is from the time at. The
// broker must be Unverified.
func (b *Broker) Hang(t testing.TB, topic string, at time.Time) {
	t.Helper()
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(0, 11) // Produce adds the partition to the transaction from 12 on
	client := b.Client(t, kgo.MaxVersions(versions))
	id := "hangs"
	producer, epoch, err := claim(t.Context(), client, id)
	must.OK(t, err)

	req := kmsg.NewPtrProduceRequest()
	req.TransactionID, req.Acks, req.TimeoutMillis = &id, -1, 10_000
	partition := kmsg.NewProduceRequestTopicPartition()
	partition.Records = transactional(producer, epoch, at)
	of := kmsg.NewProduceRequestTopic()
	of.Topic, of.Partitions = topic, append(of.Partitions, partition)
	req.Topics = append(req.Topics, of)
	resp := must.Get(req.RequestWith(t.Context(), client.Broker(1)))(t)
	must.OK(t, kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode))
}

// transactional is a batch with a single record of a transaction.
func transactional(producer int64, epoch int16, at time.Time) []byte {
	record := kmsg.Record{Value: []byte("x")}
	record.Length = int32(len(record.AppendTo(nil)) - 1) // without the length itself
	records := record.AppendTo(nil)
	batch := kmsg.RecordBatch{
		Length: int32(49 + len(records)), PartitionLeaderEpoch: -1, Magic: 2, Attributes: 1 << 4, // transactional
		FirstTimestamp: at.UnixMilli(), MaxTimestamp: at.UnixMilli(), ProducerID: producer, ProducerEpoch: epoch, NumRecords: 1, Records: records,
	}
	const checked = 21 // the CRC is of the bytes from here on
	batch.CRC = int32(crc32.Checksum(batch.AppendTo(nil)[checked:], crc32.MakeTable(crc32.Castagnoli)))
	return batch.AppendTo(nil)
}
