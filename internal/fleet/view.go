package fleet

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/fleet/placement"
)

// View is the whole fleet, as Kafka's coordinator knows it.
type View struct {
	Group string `json:"group"`
	// Leader has decided last, at Decided.
	Leader    string         `json:"leader,omitempty"`
	Decided   time.Time      `json:"decided,omitzero"`
	Members   []MemberView   `json:"members"`
	Pipelines []PipelineView `json:"pipelines"`
	// Moves are the last ones, the latest first.
	Moves []MoveView `json:"moves"`
}

// MemberView is a member of the fleet.
type MemberView struct {
	Name    string `json:"name"`
	Rack    string `json:"rack,omitempty"`
	Host    string `json:"host"`
	Version string `json:"version,omitempty"`
	Drained bool   `json:"drained,omitempty"`
	Leaving bool   `json:"leaving,omitempty"`
	// File is a hash of the member's configuration: of its pipelines, with their
	// specifications.
	File string `json:"file"`
	// Pipelines is the number of those assigned.
	Pipelines int `json:"pipelines"`
	// Rate is the number of events a second, when the member joined last.
	Rate float64 `json:"events_per_second"`
	// Faults are of the member's sources of pipelines. The member's /status has all.
	Faults Faults `json:"faults,omitzero"`
}

// PipelineView is a pipeline of the fleet.
type PipelineView struct {
	Name string `json:"name"`
	// Member has the pipeline; "" for none.
	Member string  `json:"member,omitempty"`
	Rate   float64 `json:"events_per_second"`
	// Outdated pipelines run with an older specification than another member's.
	Outdated bool `json:"outdated,omitempty"`
	// Waiting is why no member has the pipeline.
	Waiting string `json:"waiting_for,omitempty"`
	// holder drains the pipeline; "" for none.
	holder string
}

// MoveView is a move of a pipeline.
type MoveView struct {
	Pipeline string           `json:"pipeline"`
	From     string           `json:"from"`
	To       string           `json:"to"`
	Reason   placement.Reason `json:"reason"`
	Began    time.Time        `json:"began,omitzero"`
	Placed   time.Time        `json:"placed,omitzero"`
}

// ErrNoGroup is the error of a group without members.
var ErrNoGroup = errors.New("the fleet has no members")

// errUnsettled passes by itself.
var errUnsettled = errors.New("the members of the fleet are just coming together")

// viewWaits are between two looks at a group in a rebalance.
var viewWaits = backoff.Range{First: 50 * time.Millisecond, Longest: 500 * time.Millisecond}

// Look asks the coordinator for the fleet, until ctx ends.
func Look(ctx context.Context, client *kgo.Client, group string) (*View, error) {
	for retry := (backoff.Series{Range: viewWaits}); ; {
		v, err := look(ctx, client, group)
		if err == nil || !errors.Is(err, errUnsettled) && !kerr.IsRetriable(err) {
			return v, err
		}
		if retry.Pause(ctx) != nil {
			return nil, err
		}
	}
}

func look(ctx context.Context, client *kgo.Client, group string) (*View, error) {
	found, err := broker.DescribeGroup(ctx, client, group)
	switch {
	case errors.Is(err, kerr.GroupIDNotFound):
		return nil, ErrNoGroup
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		return nil, failure.Configf(fmt.Sprintf("allow Describe on the group %q", group), "describe group %q: %w", group, err)
	case err != nil:
		return nil, fmt.Errorf("describe group %q: %w", group, err)
	}
	switch found.State {
	case "Dead", "Empty":
		return nil, ErrNoGroup
	case "Stable":
	default:
		return nil, errUnsettled
	}
	if found.ProtocolType != protocolType {
		return nil, failure.Configf("name the fleet's as fleet.group", "group %q is of other clients (%s)", group, found.ProtocolType)
	}
	return view(found)
}

// view puts together the words of members and leader.
func view(found kmsg.DescribeGroupsResponseGroup) (*View, error) {
	v := &View{Group: found.Group, Members: []MemberView{}, Pipelines: []PipelineView{}, Moves: []MoveView{}}
	var last assignment
	pipelines := map[string]*PipelineView{}
	newest, running := map[string]placement.Offer{}, map[string]string{}
	for _, m := range found.Members {
		var a announcement
		var got assignment
		if err := errors.Join(decode(m.ProtocolMetadata, &a), decode(m.MemberAssignment, &got)); err != nil {
			return nil, fmt.Errorf("read what member %s says: %w", m.MemberID, err)
		}
		if got.At > last.At {
			last = got
		}
		if a.Wants != nil {
			continue // an operator
		}
		for _, o := range a.Offers {
			if placement.Newer(o, newest[o.Pipeline]) {
				newest[o.Pipeline] = o
			}
			if pipelines[o.Pipeline] == nil {
				pipelines[o.Pipeline] = &PipelineView{Name: o.Pipeline}
			}
		}
		of := MemberView{Name: a.Name, Rack: a.Rack, Host: m.ClientHost, Version: a.Version, Drained: a.Drained, Leaving: a.Leaving, File: fileOf(a.Offers), Pipelines: len(got.Run), Faults: a.Faults}
		for _, h := range a.Holds {
			of.Rate += h.Rate
		}
		v.Members = append(v.Members, of)
		for _, p := range got.Run {
			if pipelines[p.Pipeline] == nil {
				pipelines[p.Pipeline] = &PipelineView{Name: p.Pipeline}
			}
			pipelines[p.Pipeline].Member, pipelines[p.Pipeline].Rate = a.Name, p.Rate
			running[p.Pipeline] = p.Spec
		}
	}
	for name, p := range pipelines {
		p.Outdated = p.Member != "" && newest[name].Spec != "" && running[name] != newest[name].Spec
	}
	v.Leader, v.Decided = last.Leader, moment(last.At)
	for _, w := range last.Waits {
		if p := pipelines[w.Pipeline]; p != nil {
			p.Waiting, p.holder = waitingFor(w), w.Holder
		}
	}
	for _, e := range slices.Backward(last.History.Events) {
		v.Moves = append(v.Moves, MoveView{e.Pipeline, e.From, e.To, e.Reason, moment(e.Began), moment(e.Placed)})
	}
	slices.SortFunc(v.Members, func(a, b MemberView) int { return cmp.Compare(a.Name, b.Name) })
	for _, name := range slices.Sorted(maps.Keys(pipelines)) {
		v.Pipelines = append(v.Pipelines, *pipelines[name])
	}
	return v, nil
}

// fileOf is a short hash, the same for files with the same pipelines.
func fileOf(offers []placement.Offer) string {
	h := sha256.New()
	for _, o := range slices.SortedFunc(slices.Values(offers), func(a, b placement.Offer) int { return cmp.Compare(a.Pipeline, b.Pipeline) }) {
		fmt.Fprintf(h, "%s=%s\n", o.Pipeline, o.Spec)
	}
	return hex.EncodeToString(h.Sum(nil)[:4])
}

// waitingFor says why a pipeline has no member.
func waitingFor(w placement.Wait) string {
	if w.Holder != "" {
		return "member " + w.Holder + " drains it"
	}
	return "no member can take it"
}

// moment is a time in Unix milliseconds; 0: none.
func moment(at int64) time.Time {
	if at == 0 {
		return time.Time{}
	}
	return time.UnixMilli(at).UTC()
}
