package e2e

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// missed logs what is known of the events that consumers do not see: where they
// are, if they were written at all, and what holds their partitions back.
func (k *campaign) missed(ids []string) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	client := k.cluster.Client(k.t)
	defer client.Close()
	admin := kadm.NewClient(client)
	for i, id := range ids {
		if _, seen := k.reader.Find(id); seen {
			continue
		}
		rec, written := k.all.Find(id)
		if !written {
			k.t.Logf("event %d of %d, %s, was not written", i+1, len(ids), id)
			continue
		}
		stable, err := admin.ListCommittedOffsets(ctx, rec.Topic)
		last, _ := stable.Lookup(rec.Topic, rec.Partition)
		k.t.Logf("event %d of %d, %s, is at %d of partition %d of %s, which is stable up to %d (%v)",
			i+1, len(ids), id, rec.Offset, rec.Partition, rec.Topic, last.Offset, err)
		producers, err := admin.DescribeProducers(ctx, kadm.TopicsSet{rec.Topic: {rec.Partition: {}}})
		k.t.Logf("its producers: %+v (%v)", producers, err)
	}
	transactions, err := admin.DescribeTransactions(ctx, k.transactionalID())
	k.t.Logf("the transaction: %+v (%v)", transactions, err)
}
