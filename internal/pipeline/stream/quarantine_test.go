package stream

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
)

// With transaction.version 1, all transactions of a claim have an epoch: those before the
// doubtful one count, also where the doubtful one wrote nothing to the topic.
func TestARecordOfADoubtfulTransaction(t *testing.T) {
	d := checkpoint.Doubtful{Producer: 7, Epoch: 2, Written: checkpoint.Written{"parked": {0: {Records: 1, From: 10}}}}
	for name, c := range map[string]struct {
		rec  kgo.Record
		want bool
	}{
		"its own":                        {kgo.Record{Topic: "parked", ProducerID: 7, ProducerEpoch: 2, Offset: 10}, true},
		"of an earlier transaction":      {kgo.Record{Topic: "parked", ProducerID: 7, ProducerEpoch: 2, Offset: 9}, false},
		"of another claim":               {kgo.Record{Topic: "parked", ProducerID: 7, ProducerEpoch: 3, Offset: 10}, false},
		"of another producer":            {kgo.Record{Topic: "parked", ProducerID: 8, ProducerEpoch: 2, Offset: 10}, false},
		"in a topic it did not write to": {kgo.Record{Topic: "other", ProducerID: 7, ProducerEpoch: 2, Offset: 10}, false},
	} {
		if got := of(d, &c.rec); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
