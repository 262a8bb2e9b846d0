package main

import (
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// Flags that are wrong, or that say nothing together, are refused with the way on.
func TestReplayRefusesFlags(t *testing.T) {
	config := writeFile(t, "source: {url: 'postgres:///app'}\nsink: {kafka: {brokers: ['127.0.0.1:1']}}\n")
	for flags, words := range map[string]string{
		"--id 1":                                                "replay needs a --name",
		"--name n":                                              "replay needs --since",
		"--name n --from-topic t":                               "--from-lsn, --to-lsn or --offsets",
		"--name n --from-lsn 0/10":                              "by --from-topic",
		"--name n --offsets 0:1-2":                              "by --from-topic",
		"--name n --from-topic t --from-lsn 0/10x":              "for example 0/16B3748",
		"--name n --from-topic t --from-lsn 16":                 "for example 0/16B3748",
		"--name n --from-topic t --to-lsn 0/0":                  "for example 0/16B3748",
		"--name n --from-topic t --offsets 0:2-1":               "PARTITION:FROM-TO",
		"--name n --from-topic t --xid 750":                     "--from-lsn and --to-lsn",
		"--name n --from-topic t --topic u --id 1":              "--topic chooses rows",
		"--name n --since 2026-11-23":                           "as 2026-11-01T00:00:00Z",
		"--name n --until soon":                                 "or 24h for so long ago",
		"--name n --xid 750-x":                                  "header cdc-xid",
		"--name n --until 1h --since 30m":                       "no row is from",
		"--name n --id 1 --timeout 0s":                          "no time to wait",
		"--name n --from-topic t --id 1 --since -24h":           "in the future",
		"--name n --from-topic t --from-lsn 0/20 --to-lsn 0/10": "no transaction is from 0/20 on and up to 0/10",
	} {
		got := execute(t.Context(), nil, append([]string{"replay", "-c", config}, strings.Fields(flags)...)...)
		if got.code != 2 {
			t.Errorf("%s: exit code %d", flags, got.code)
		}
		must.Contain(t, got.stderr, words)
	}
}
