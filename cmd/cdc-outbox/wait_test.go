package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

func TestWaitRefusesAndGivesUp(t *testing.T) {
	single := []string{"CDC_OUTBOX_SOURCE_URL=postgres://cdc:xyzzy@127.0.0.1:1/app", "CDC_OUTBOX_SINK_STDOUT=true"}
	for _, tt := range []struct {
		args  string
		code  int
		words string
	}{
		{"wait --lsn 0/16B3748 --now", 2, "takes either --lsn or --now\nremedy: leave out one of the two"},
		{"wait --lsn yesterday", 2, "no position in a log\nremedy: for example --lsn 0/16B3748"},
		{"wait --lsn 0/0", 2, "no position in a log"},
		{"wait --timeout 0s", 2, "leaves no time\nremedy: for example --timeout 90s"},
		{"wait --timeout soon", 2, "has a bad flag"},
		{"wait --lsn 0/16B3748 --set source.mode=poll --set event.position_headers=false", 2, "wait --lsn needs a replication slot"},
		{"wait --timeout 200ms", 1, "not everything is in Kafka after 200ms: connect to PostgreSQL: "},
		{"wait --timeout 200ms --json", 1, "not everything is in Kafka after 200ms"},
		{"wait --timeout 200ms --set source.mode=poll --set event.position_headers=false", 1, "not everything is in Kafka after 200ms"},
	} {
		got := execute(t.Context(), single, strings.Fields(tt.args)...)
		if got.code != tt.code {
			t.Errorf("%s: code %d, want %d", tt.args, got.code, tt.code)
		}
		must.Contain(t, got.stderr, tt.words)
		if strings.Contains(got.stdout+got.stderr, "xyzzy") {
			t.Errorf("%s shows the password: %+v", tt.args, got)
		}
		if slices.Contains(strings.Fields(tt.args), "--json") && !json.Valid([]byte(got.stdout)) {
			t.Errorf("%s prints no JSON: %s", tt.args, got.stdout)
		}
	}
}
