package pipeline

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

func TestOriginOfEvents(t *testing.T) {
	tables := []pg.Table{{Schema: "public", Name: "outbox"}, {Schema: "sales", Name: "outbox"}}
	for name, c := range map[string]struct {
		source config.Source
		want   string
	}{
		"rows":     {config.Source{Mode: config.ModeWAL, Slot: "s", Tables: tables}, "s: public.outbox, sales.outbox"},
		"messages": {config.Source{Mode: config.ModeMessage, Slot: "s", MessagePrefix: "outbox"}, "s: messages with the prefix outbox"},
		"both": {config.Source{Mode: config.ModeMessage, Slot: "s", MessagePrefix: "outbox", Tables: tables[:1]},
			"s: messages with the prefix outbox, public.outbox"},
		"polled": {config.Source{Mode: config.ModePoll, Slot: "unused", Tables: tables}, "public.outbox, sales.outbox"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := origin(c.source); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
