package sink

import (
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The sink chooses each record's partition itself, before the client gets the
// record: the round depends on the choice, and a resent record must go to the
// same partition. The client only confirms.

// byKey hashes a key as Kafka's Java producer does by default (murmur2, sign
// bit cleared, modulo the partitions), so a key stays in Debezium's partition.
// byKey keeps no state for records with a key.
var byKey = kgo.StickyKeyPartitioner(nil).ForTopic("")

// PartitionOf is the partition, of n, of a record with the key, which is not nil.
func PartitionOf(key []byte, n int) int32 { return int32(byKey.Partition(&kgo.Record{Key: key}, n)) }

// chosen is the client's kgo.Partitioner: it takes Record.Partition unchanged
// and remembers the client's number of partitions.
type chosen struct {
	mu     sync.Mutex
	counts map[string]*partitionCount
}

// count returns the topic's counter, always the same.
func (c *chosen) count(topic string) *partitionCount {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.counts[topic]
	if n == nil {
		if c.counts == nil {
			c.counts = make(map[string]*partitionCount)
		}
		n = new(partitionCount)
		c.counts[topic] = n
	}
	return n
}

// reset forgets the counts: a new client knows no topic.
func (c *chosen) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, count := range c.counts {
		count.n.Store(0)
	}
}

// ForTopic implements kgo.Partitioner.
func (c *chosen) ForTopic(topic string) kgo.TopicPartitioner { return c.count(topic) }

// partitionCount is the client's number of a topic's partitions at the last
// record there; 0 before the first.
type partitionCount struct{ n atomic.Int32 }

// RequiresConsistency implements kgo.TopicPartitioner: the choice holds also
// while the partition has no leader.
func (*partitionCount) RequiresConsistency(*kgo.Record) bool { return true }

// Partition implements kgo.TopicPartitioner.
func (p *partitionCount) Partition(r *kgo.Record, n int) int {
	p.n.Store(int32(n))
	return int(r.Partition)
}
