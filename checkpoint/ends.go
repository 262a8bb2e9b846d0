package checkpoint

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Ends are how far the logs of topics reach at least, by topic: brokers have
// acknowledged records up to there. A start compares them with the logs:
// nothing else tells that brokers lost acknowledged records while no connector
// was running.
type Ends map[string]TopicEnds

// TopicEnds are the ends of a single topic.
type TopicEnds struct {
	ID string  `json:"id,omitempty"` // tells the topic from another of the same name; "": not known
	To []int64 `json:"to"`           // by partition, the offset behind the last; 0: not known
}

// EndsHeader is the header with the Ends of a checkpoint's record in a Kafka
// transaction. It counts that transaction, too.
const EndsHeader = "cdc-ends"

// Raise notes that the partition's log reaches the end at least.
func (e Ends) Raise(topic, id string, partition int32, end int64) {
	t := e[topic]
	t.ID = id
	if n := int(partition) + 1; n > len(t.To) {
		t.To = append(t.To, make([]int64, n-len(t.To))...)
	}
	t.To[partition] = max(t.To[partition], end)
	e[topic] = t
}

// Clone returns a copy sharing nothing.
func (e Ends) Clone() Ends {
	all := make(Ends, len(e))
	for topic, t := range e {
		t.To = slices.Clone(t.To)
		all[topic] = t
	}
	return all
}

// Header is the value of EndsHeader.
func (e Ends) Header() ([]byte, error) { return json.Marshal(e) }

// ParseEnds reads Header's value.
func ParseEnds(header []byte) (e Ends, err error) {
	if err = json.Unmarshal(header, &e); err != nil {
		return nil, fmt.Errorf("header %s: %w", EndsHeader, err)
	}
	return e, nil
}
