package main

import (
	"strings"
	"testing"
)

func TestVerbsRefuseWhatCannotWork(t *testing.T) {
	for _, tt := range []struct{ args, stderr string }{
		{"inspect --scope s --id 1", "no store given\nremedy: add --store URL, or export CDC_OUTBOX_IDEMPOTENCY_STORE"},
		{"inspect --id 1 --store redis://h", "no scope given"},
		{"inspect --scope s --store redis://h", "no message given"},
		{"inspect --scope s --id 1 --store h:6379", "not given as a URL"},
		{"inspect --scope s --id 1 --store mysql://u:xyzzy@h", "no store of that kind"},
		{"inspect --scope s --id 1 --store redis://u:xyzzy@h:port", "not one of Redis"},
		{"inspect --scope s --id 1 --store postgres://u:xyzzy@h:port", "not one of PostgreSQL"},
		{"inspect --scope a/b --id 1 --store redis://127.0.0.1:1", "correct --scope and --id"},
		{"purge --scope s --state complete --yes", `unknown state "complete"` + "\nremedy: did you mean completed?"},
		{"sweep --store redis://127.0.0.1:1", "removes by itself"},
		{"sweep", "no store given"},
		{"sweep --batch -1", "negative"},
		{"purge --scope s --older -1h --yes --store redis://127.0.0.1:1", "negative"},
	} {
		got := execute(t.Context(), nil, strings.Fields(tt.args)...)
		if got.code != 2 || !strings.Contains(got.stderr, tt.stderr) || strings.Contains(got.stderr, "xyzzy") {
			t.Errorf("%s: code %d, stderr %q, want %q", tt.args, got.code, got.stderr, tt.stderr)
		}
	}
	got := execute(t.Context(), nil, strings.Fields("inspect --scope s --id 1 --store redis://u:xyzzy@127.0.0.1:1")...)
	if got.code != 1 || strings.Contains(got.stderr, "xyzzy") {
		t.Errorf("store out of reach: code %d, stderr %q", got.code, got.stderr)
	}
}
