package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
	"github.com/cdc-outbox/cdc-outbox/internal/quarantine"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// parkedKeys are the keys in the quarantine, whose events a verb does not publish past the
// parked ones. A quarantine out of use counts, too. A nil *parkedKeys has none.
type parkedKeys struct {
	cfg   *config.Config
	units map[quarantine.Unit]bool
	read  time.Time

	left  int             // events left out
	first transform.Event // the first of them
}

// parkedFor is how long a look at the quarantine counts.
const parkedFor = 5 * time.Second

// look reads the quarantine, unless the last look is recent.
func (p *parkedKeys) look(ctx context.Context) error {
	if p == nil || time.Since(p.read) < parkedFor {
		return nil
	}
	log, err := wiring.OpenQuarantine(p.cfg)
	if err != nil {
		return err
	}
	defer log.Close()
	contents, err := log.Read(ctx, quarantine.None)
	switch {
	case errors.Is(err, kerr.TopicAuthorizationFailed) && p.cfg.Errors.OnBadEvent != transform.BadEventQuarantine:
		// no right to a topic not known to exist
	case err != nil:
		return fmt.Errorf("look for parked keys: %w", err)
	}
	p.units, p.read = contents.Units(), time.Now()
	return nil
}

// flowing returns the indexes of the items whose keys are not parked. The others become bad.
func (p *parkedKeys) flowing(items []delivery.Item) []int {
	flowing := make([]int, 0, len(items))
	for i := range items {
		ev := items[i].Event
		if unit, alone := quarantine.UnitOf(ev); p == nil || alone || !p.units[unit] {
			flowing = append(flowing, i)
			continue
		}
		if p.left++; p.left == 1 {
			p.first.Record.Topic, p.first.Record.Key = ev.Record.Topic, ev.Record.Key
		}
		items[i].Bad = &transform.BadEvent{Reason: delivery.Behind, Err: failure.Configf(settleParked, "its key is in the quarantine, and the event would pass the parked ones")}
	}
	return flowing
}

const settleParked = "settle the key's events (`cdc-outbox quarantine list`), and repeat the command"

// unpublished is the error of events left out; nil: there are none.
func (p *parkedKeys) unpublished() error {
	if p == nil || p.left == 0 {
		return nil
	}
	return failure.Configf("settle these keys (`cdc-outbox quarantine list`), and repeat the command, which publishes the rest",
		"%d events were not published, as their keys are in the quarantine, and they would pass the parked ones: the first is of topic %q, key %q",
		p.left, shortened(p.first.Record.Topic), shortened(string(p.first.Record.Key)))
}
