package admin

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker/kafkalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// OffsetRange are records of a partition, both ends included.
type OffsetRange struct {
	Partition int32
	From, To  int64 // To is lastOffset for those up to the present end
}

const lastOffset = math.MaxInt64

// ParseOffsets reads PARTITION:FROM-TO or PARTITION:FROM-.
func ParseOffsets(text string) (r OffsetRange, err error) {
	partition, offsets, _ := strings.Cut(text, ":")
	from, to, both := strings.Cut(offsets, "-")
	p, partitionErr := strconv.ParseInt(partition, 10, 32)
	f, fromErr := strconv.ParseInt(from, 10, 64)
	r = OffsetRange{int32(p), f, lastOffset}
	if to != "" {
		r.To, err = strconv.ParseInt(to, 10, 64)
	}
	if errors.Join(partitionErr, fromErr, err) != nil || !both || p < 0 || f < 0 || r.To < f {
		return r, errors.New("write PARTITION:FROM-TO, both included, or PARTITION:FROM-")
	}
	return r, nil
}

// String is what ParseOffsets reads.
func (r OffsetRange) String() string {
	if r.To == lastOffset {
		return fmt.Sprintf("%d:%d-", r.Partition, r.From)
	}
	return fmt.Sprintf("%d:%d-%d", r.Partition, r.From, r.To)
}

// LSNs are positions of commits, both included; a zero one is no bound.
type LSNs struct{ From, To pg.LSN }

// has tells whether the record is of a transaction in the range; ok is false for a
// record without a position.
func (l LSNs) has(rec *kgo.Record) (at pg.LSN, in, ok bool) {
	text, _ := transform.Header(rec.Headers, transform.HeaderLSN)
	at, err := pg.ParseLSN(string(text))
	if err != nil {
		return 0, false, false
	}
	return at, at >= l.From && (l.To == 0 || at <= l.To), true
}

// extend takes in a position.
func (l *LSNs) extend(at pg.LSN) {
	if l.From == 0 || at < l.From {
		l.From = at
	}
	l.To = max(l.To, at)
}

// String says from where to where the positions go.
func (l LSNs) String() string {
	if l.To == 0 {
		return "none has a position"
	}
	return fmt.Sprintf("they have %s to %s", l.From, l.To)
}

// within refuses ranges that the partitions do not have.
func within(topic string, logs []*kafkalog.Partition, ranges []OffsetRange) error {
	bounds := make(map[int32]int64)
	for _, log := range logs {
		_, bounds[log.Number()] = log.Bounds()
	}
	for _, r := range ranges {
		end, ok := bounds[r.Partition]
		switch {
		case !ok:
			return failure.Configf("give one of its partitions", "--offsets %s: topic %q has %d partitions, and none with the number %d", r, topic, len(logs), r.Partition)
		case r.From >= end, r.To != lastOffset && r.To >= end:
			return failure.Configf(fmt.Sprintf("for all up to the present end: --offsets %d:%d-", r.Partition, min(r.From, max(0, end-1))),
				"--offsets %s: partition %d of topic %q ends before offset %d", r, r.Partition, topic, end)
		}
	}
	return nil
}
