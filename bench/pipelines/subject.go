package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
	"github.com/cdc-outbox/cdc-outbox/internal/fleet"
)

// groupName is the fleet's group.
const groupName = "bench"

// subject is a process with so many pipelines or, with several processes, a fleet. Its pipelines
// have slots or poll.
type subject struct {
	pipelines, processes int
	polls                bool
}

// table has the subject's events.
func (s subject) table() string {
	if s.polls {
		return "polled"
	}
	return "outbox"
}

func (s subject) String() string {
	switch {
	case s.processes > 1:
		return fmt.Sprintf("%d pipelines on %d processes", s.pipelines, s.processes)
	case s.polls:
		return fmt.Sprintf("%d polling pipelines", s.pipelines)
	case s.pipelines == 1:
		return "1 pipeline"
	}
	return fmt.Sprintf("%d pipelines", s.pipelines)
}

// programs are a subject's processes.
type programs []*rig.Program

// begin starts the subject's processes. The caller must stop them, also after an error.
func (s *stage) begin(ctx context.Context, of subject) (all programs, err error) {
	file := filepath.Join(s.dir, "cdc-outbox.yaml")
	if err := os.WriteFile(file, s.configuration(of), 0o600); err != nil {
		return nil, err
	}
	if of.polls {
		if err := s.connector.Do(ctx, []string{"setup", "-c", file}); err != nil {
			return nil, err
		}
	}
	for n := range of.processes {
		settings := append([]string{"http.listen=", "log.level=warn"}, s.set...)
		if of.processes > 1 {
			settings = append(settings, fmt.Sprintf("fleet.member=m%d", n))
		}
		process, err := s.connector.Start([]string{"run", "-c", file}, settings...)
		if err != nil {
			return all, err
		}
		all = append(all, &rig.Program{Process: process})
	}
	return all, nil
}

// configuration has the subject's pipelines. A fleet's group is in a separate cluster.
func (s *stage) configuration(of subject) []byte {
	var process []byte
	if of.processes > 1 {
		process = fmt.Appendf(nil, "fleet: {group: %s, moves: 10}\nsink: {kafka: {brokers: [%q]}}\n", groupName, s.group.Addr)
	}
	sink := fmt.Sprintf("{kafka: {brokers: [%q], delivery: %s}}", s.broker.Addr, s.delivery)
	pipelines := slices.Clone(s.made[:of.pipelines])
	if of.polls {
		for n := range pipelines {
			pipelines[n].Polled = of.table()
		}
	}
	return append(process, rig.Configuration(pipelines, sink)...)
}

// stop has all programs drain at once, and joins them.
func (p programs) stop() error {
	var stopping errgroup.Group
	for _, program := range p {
		stopping.Go(func() error {
			_, err := program.Stop()
			return err
		})
	}
	return stopping.Wait()
}

// usage is the usage of all programs together, with PSS.
func (p programs) usage() (sum rig.Usage, pss float64, err error) {
	for _, program := range p {
		used, err := program.Usage()
		if err != nil {
			return sum, 0, program.Explain(err)
		}
		shared, err := program.PSS()
		if err != nil {
			return sum, 0, program.Explain(err)
		}
		sum.CPU += used.CPU
		sum.RSS += used.RSS
		sum.Peak += used.Peak
		pss += shared
	}
	return sum, pss, nil
}

// alive returns an error once a program has ended.
func (p programs) alive(ctx context.Context) error {
	for _, program := range p {
		if err := program.Alive(ctx); err != nil {
			return program.Explain(err)
		}
	}
	return nil
}

// balanced reports whether the members of the fleet have about equal shares.
func (s *stage) balanced(ctx context.Context, of subject) (bool, error) {
	if of.processes == 1 {
		return true, nil
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(s.group.Addr))
	if err != nil {
		return false, err
	}
	defer client.Close()
	view, err := fleet.Look(ctx, client, groupName)
	if errors.Is(err, fleet.ErrNoGroup) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	least, most := of.pipelines, 0
	for _, m := range view.Members {
		least, most = min(least, m.Pipelines), max(most, m.Pipelines)
	}
	return len(view.Members) == of.processes && most-least <= 1+of.pipelines/of.processes/5, nil
}
