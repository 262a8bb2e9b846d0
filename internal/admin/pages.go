package admin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/audit"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker/kafkalog"
)

// pages reads records of a topic by their places, which mostly follow one another.
type pages struct {
	topic   string
	readers map[int32]*audit.Reader
	fetched map[int32][]*kgo.Record
	sizes   map[int32]int // bytes of each fetch
	bytes   int           // of all
}

// mostPages is how many bytes are kept of several partitions.
const mostPages = 16 << 20

func newPages(client *kgo.Client, topic string, logs []*kafkalog.Partition, opts audit.ReadOptions) *pages {
	p := &pages{topic: topic, readers: make(map[int32]*audit.Reader), fetched: make(map[int32][]*kgo.Record), sizes: make(map[int32]int)}
	for _, log := range logs {
		p.readers[log.Number()] = audit.NewReader(client, log, topic, opts)
	}
	return p
}

// record returns the record at a place, valid until the next call; see own. The error of
// a deleted record wraps errGone.
func (p *pages) record(ctx context.Context, at LetterPlace) (*kgo.Record, error) {
	if rec := p.find(at); rec != nil {
		return rec, nil
	}
	if p.bytes > mostPages {
		clear(p.fetched)
		clear(p.sizes)
		p.bytes = 0
	}
	reader := p.readers[at.Partition]
	if reader == nil {
		return nil, p.gone(at)
	}
	records, _, err := reader.Read(ctx, at.Offset)
	switch {
	case errors.Is(err, kerr.OffsetOutOfRange):
		return nil, p.gone(at)
	case err != nil:
		return nil, err
	}
	size := 0
	for _, rec := range records {
		size += sizeOf(rec)
	}
	p.bytes += size - p.sizes[at.Partition]
	p.fetched[at.Partition], p.sizes[at.Partition] = records, size
	if rec := p.find(at); rec != nil {
		return rec, nil
	}
	return nil, p.gone(at)
}

// errGone is wrapped by the error of a record deleted since its place was noted.
var errGone = errors.New("was deleted meanwhile")

func (p *pages) gone(at LetterPlace) error {
	return &failure.Error{Class: failure.Transient, Remedy: "repeat the command", Err: fmt.Errorf("the record %s of topic %q %w", at, p.topic, errGone)}
}

// sizeOf is what the record takes in memory, about.
func sizeOf(rec *kgo.Record) int {
	n := len(rec.Key) + len(rec.Value)
	for _, h := range rec.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return n
}

// own returns the record with bytes of its own. Those of a fetch would keep the
// whole fetch in memory.
func own(rec *kgo.Record) *kgo.Record {
	owned := *rec
	owned.Key, owned.Value, owned.Headers = bytes.Clone(rec.Key), bytes.Clone(rec.Value), slices.Clone(rec.Headers)
	for i := range owned.Headers {
		owned.Headers[i].Value = bytes.Clone(owned.Headers[i].Value)
	}
	return &owned
}

// find returns the record if it was fetched.
func (p *pages) find(at LetterPlace) *kgo.Record {
	page := p.fetched[at.Partition]
	for len(page) > 0 && page[0].Offset < at.Offset {
		page = page[1:]
	}
	p.fetched[at.Partition] = page
	if len(page) == 0 || page[0].Offset != at.Offset {
		return nil
	}
	return page[0]
}
