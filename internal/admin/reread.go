package admin

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/audit"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// reread reads records of several topics again, by their places.
type reread struct {
	*auditor
	topics map[uint16]*pages
}

func (a *auditor) reread() *reread { return &reread{a, make(map[uint16]*pages)} }

// record returns the record at a place; nil: deleted, or the topic was made again.
func (r *reread) record(ctx context.Context, at audit.Spot, key audit.Key) (*kgo.Record, error) {
	read := r.topics[at.Log]
	if read == nil {
		topic := r.auditor.topics.Name(at.Log)
		logs, err := audit.Open(ctx, r.cluster.client, topic, r.readOptions())
		if err != nil {
			return nil, err
		}
		read = newPages(r.cluster.client, topic, logs, r.readOptions())
		r.topics[at.Log] = read
	}
	rec, err := read.record(ctx, LetterPlace{at.Partition, at.Offset})
	if errors.Is(err, errGone) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	id, _ := transform.Header(rec.Headers, transform.HeaderID)
	if audit.KeyOf(id) != key {
		return nil, nil
	}
	return rec, nil
}
