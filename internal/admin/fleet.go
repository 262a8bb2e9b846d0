package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/fleet"
	"github.com/cdc-outbox/cdc-outbox/internal/wiring"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

// FleetReport is the whole fleet.
type FleetReport struct{ *fleet.View }

// fleetPatience bounds the wait for an answer about a fleet.
const fleetPatience = 15 * time.Second

// Fleet asks Kafka for the fleet of the configuration.
func Fleet(ctx context.Context, cfg *config.Config) (*FleetReport, error) {
	client, err := fleetClient(cfg)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, fleetPatience, fmt.Errorf("no answer within %s", fleetPatience))
	defer cancel()
	v, err := fleet.Look(ctx, client, cfg.Fleet.Group)
	if err != nil {
		return nil, explainFleet(cfg, err)
	}
	return &FleetReport{v}, nil
}

func fleetClient(cfg *config.Config) (*kgo.Client, error) {
	if !cfg.Fleet.On() {
		return nil, failure.Configf("set fleet.group, as in the members' file", "the configuration has no fleet")
	}
	return wiring.FleetClient(cfg)
}

// explainFleet adds the remedy.
func explainFleet(cfg *config.Config, err error) error {
	if errors.Is(err, fleet.ErrNoGroup) {
		return &failure.Error{Class: failure.Transient, Remedy: "start a member: cdc-outbox run", Err: fmt.Errorf("group %q: %w", cfg.Fleet.Group, err)}
	}
	return sink.Unreachable(*cfg.Sink.Kafka, err)
}

// drainLook is between two looks at a member being drained.
const drainLook = 500 * time.Millisecond

// DrainFleet has the member drained, or not any more, and tells note how many pipelines are
// left there, until none is. With a timeout, the error says how many are.
func DrainFleet(ctx context.Context, cfg *config.Config, member string, drained bool, timeout time.Duration, note func(string)) error {
	client, err := fleetClient(cfg)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("%s have passed", timeout))
	defer cancel()
	v, err := fleet.Drain(ctx, client, cfg.Fleet.Group, member, drained)
	if err != nil {
		return explainFleet(cfg, err)
	}
	for told := -1; drained; {
		left := v.Left(member)
		if left == 0 {
			return nil
		}
		if left != told {
			note(fmt.Sprintf("member %s has %d more pipelines", member, left))
			told = left
		}
		if backoff.Sleep(ctx, drainLook) != nil {
			return &failure.Error{
				Class: failure.Transient, Remedy: "cdc-outbox fleet status says what they wait for; the member stays drained",
				Err: fmt.Errorf("member %s still has %d pipelines: %w", member, left, context.Cause(ctx)),
			}
		}
		again, err := fleet.Look(ctx, client, cfg.Fleet.Group)
		if err == nil {
			v = again
		}
	}
	return nil
}

// WriteText writes members, pipelines and the last moves.
func (r *FleetReport) WriteText(w io.Writer) error {
	fmt.Fprintf(w, "fleet %s: %d members, %d pipelines, leader %s\n\n", r.Group, len(r.Members), len(r.Pipelines), r.Leader)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "MEMBER\tRACK\tHOST\tVERSION\tPIPELINES\tEVENTS/S\tSTATE")
	for _, m := range r.Members {
		state := "takes pipelines"
		switch {
		case m.Leaving:
			state = "leaves"
		case m.Drained:
			state = "drained"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%.0f\t%s\n", m.Name, cmp.Or(m.Rack, "-"), m.Host, cmp.Or(m.Version, "-"), m.Pipelines, m.Rate, state)
	}
	faulty := slices.DeleteFunc(slices.Clone(r.Members), func(m fleet.MemberView) bool { return m.Faults.Count == 0 })
	if len(faulty) > 0 {
		fmt.Fprintln(t, "\nMEMBER\tFAULTY SOURCES\tTHE FIRST (/status of the member, or its log, has all)")
	}
	for _, m := range faulty {
		fmt.Fprintf(t, "%s\t%d\t%s: %s\n", m.Name, m.Faults.Count, m.Faults.Source, m.Faults.Error)
	}
	fmt.Fprintln(t, "\nPIPELINE\tMEMBER\tEVENTS/S\tSTATE")
	for _, p := range r.Pipelines {
		state := "assigned"
		switch {
		case p.Waiting != "":
			state = "waits: " + p.Waiting
		case p.Outdated:
			state = "assigned, with an older specification"
		}
		fmt.Fprintf(t, "%s\t%s\t%.0f\t%s\n", p.Name, cmp.Or(p.Member, "-"), p.Rate, state)
	}
	if len(r.Moves) > 0 {
		fmt.Fprintln(t, "\nMOVE\tFROM\tTO\tREASON\tBEGAN\tDONE")
	}
	for _, m := range r.Moves {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", m.Pipeline, m.From, m.To, m.Reason, stamp(m.Began), stamp(m.Placed))
	}
	return t.Flush()
}

func stamp(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return at.UTC().Format(time.RFC3339)
}
