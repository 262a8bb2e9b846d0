package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/nearest"
	"github.com/cdc-outbox/cdc-outbox/internal/fleet/placement"
)

// operator is the name of a wish in the group. No member can have the name.
const operator = "(operator)"

// wishLook is between two looks for the effect of a wish.
const wishLook = 200 * time.Millisecond

// Drain tells the member to be drained, or not to be any more, and returns the fleet
// once the member knows. Drain blocks until then, or until ctx ends.
//
// The wish goes through the group, as everything does: its bearer joins, the leader hands the wish
// to the member, and the member, from then on, announces itself as drained. So the wish
// ends with the member's process, and not with the bearer's.
func Drain(ctx context.Context, client *kgo.Client, group, member string, drained bool) (*View, error) {
	if v, knows, err := known(ctx, client, group, member, drained); knows || err != nil {
		return v, err
	}
	o := DefaultOptions()
	o.Group, o.Member = group, operator
	bearer := New(Parts{
		Options: o, Client: client, Hands: noHands{}, Offers: func() []placement.Offer { return nil },
		Log: zap.NewNop(), Metrics: noMetrics{},
	})
	bearer.wants = &wish{Member: member, Drained: drained}
	joined, leave := context.WithCancel(ctx)
	var bearing sync.WaitGroup
	bearing.Go(func() { _ = bearer.Run(joined) }) // no other process can have the bearer's name
	defer func() { leave(); bearing.Wait() }()
	for {
		if err := backoff.Sleep(ctx, wishLook); err != nil {
			return nil, fmt.Errorf("member %s has not taken note: %w", member, errors.Join(bearer.Standing().Waiting, err))
		}
		if v, knows, err := known(ctx, client, group, member, drained); knows || err != nil {
			return v, err
		}
	}
}

// known looks at the fleet, and tells whether the member knows of its drain, or the drain's end.
func known(ctx context.Context, client *kgo.Client, group, member string, drained bool) (v *View, knows bool, err error) {
	if v, err = Look(ctx, client, group); err == nil {
		err = v.has(member)
	}
	if err != nil {
		return nil, false, err
	}
	return v, v.drained(member) == drained, nil
}

// has is the error of a member missing in the fleet, or nil.
func (v *View) has(member string) error {
	var names []string
	for _, m := range v.Members {
		names = append(names, m.Name)
	}
	if slices.Contains(names, member) {
		return nil
	}
	remedy := "`cdc-outbox fleet status` lists the members"
	if near := nearest.To(member, names); near != "" {
		remedy = "did you mean " + near + "?"
	}
	return failure.Configf(remedy, "fleet %q has no member %q", v.Group, member)
}

func (v *View) drained(member string) bool {
	return slices.ContainsFunc(v.Members, func(m MemberView) bool { return m.Name == member && m.Drained })
}

// Left is the number of pipelines still at the member, or drained there.
func (v *View) Left(member string) (n int) {
	for _, p := range v.Pipelines {
		if p.Member == member || p.holder == member {
			n++
		}
	}
	return n
}

// noHands run nothing.
type noHands struct{}

func (noHands) Run([]placement.Place)   {}
func (noHands) Drop()                   {}
func (noHands) Holds() []placement.Hold { return nil }

type noMetrics struct{}

func (noMetrics) FleetJoined(bool)       {}
func (noMetrics) FleetAssigned(int, int) {}
func (noMetrics) FleetMoved(string)      {}
