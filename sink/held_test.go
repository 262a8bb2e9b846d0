package sink

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// Behind a refused event no event of its key is written: each is rejected, in order, whichever
// events brokers refuse, and however they are found.
func TestEventsBehindARefusedOneAreHeld(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 31))
			partitions := 1 + rng.Int32N(3)
			c := startCluster(t, kfake.SeedTopics(partitions, "orders"))
			c.refuse(partitions, "orders", poison, kerr.InvalidRecord)
			held := make(map[string]bool)
			k, _ := newKafka(t, c.config(), WithQuarantine("parked", func(ev *transform.Event) bool { return held[string(ev.Record.Key)] }))
			evs := events("orders", 150)
			var want, got []string // of all keys, as rejected in order by key
			parked := make(map[string]bool)
			for i, ev := range evs {
				key := fmt.Sprint("key", rng.IntN(20))
				ev.Record.Key = []byte(key)
				if rng.IntN(12) == 0 || i == 0 {
					ev.Record.Value = poison
				}
				if parked[key] = parked[key] || string(ev.Record.Value) == string(poison); parked[key] {
					want = append(want, key+"/"+ev.Name())
				}
			}
			reject := func(_ context.Context, ev *transform.Event, bad *transform.BadEvent) error {
				key := string(ev.Record.Key)
				if behind := errors.Is(bad.Err, ErrHeld); behind != held[key] {
					t.Errorf("%s is held: %t, want %t", ev.Name(), behind, held[key])
				}
				held[key] = true
				got = append(got, key+"/"+ev.Name())
				return nil
			}
			must.OK(t, k.Deliver(deadline(t), evs, reject))
			if a, b := byKeyOf(want), byKeyOf(got); fmt.Sprint(a) != fmt.Sprint(b) {
				t.Errorf("rejected %v\nwant     %v", b, a)
			}
			written := 0
			for _, records := range c.read(t, "orders", partitions) {
				written += len(records)
			}
			if written+len(got) != len(evs) {
				t.Errorf("%d written and %d rejected of %d", written, len(got), len(evs))
			}
		})
	}
}

// byKeyOf are the events by their keys, in order.
func byKeyOf(rejected []string) map[string][]string {
	by := make(map[string][]string)
	for _, one := range rejected {
		var key, name string
		for i := range one {
			if one[i] == '/' {
				key, name = one[:i], one[i+1:]
				break
			}
		}
		by[key] = append(by[key], name)
	}
	return by
}
