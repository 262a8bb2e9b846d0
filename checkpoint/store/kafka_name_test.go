package store

import (
	"strings"
	"testing"
)

func TestTopicsOfKeysDiffer(t *testing.T) {
	if got := Topic("checkpoints", "shop/cdc_outbox"); got != "checkpoints.shop-cdc_outbox" {
		t.Errorf("topic %q", got)
	}
	taken := map[string]string{}
	for _, key := range []string{"a/b", "a-b", "a.b", "a b", "a_b", "ä/b", "a/b/c", "a-b/c", strings.Repeat("x", 300), strings.Repeat("x", 301), ""} {
		topic := Topic("checkpoints", key)
		same := strings.ReplaceAll(topic, ".", "_") // to brokers
		if before, ok := taken[same]; ok {
			t.Errorf("keys %q and %q have topic %s", before, key, topic)
		}
		taken[same] = key
		if len(topic) > longestTopic || strings.Trim(topic, "abcdefghijklmnopqrstuvwxyz0123456789._-") != "" {
			t.Errorf("topic %q is not legal", topic)
		}
	}
}

func TestSlotOfATopic(t *testing.T) {
	for key, want := range map[string]string{
		"shop/cdc_outbox": "cdc_outbox", "shop/": "", "shop": "", "shop-eu/cdc": "", "a/b/c": "",
	} {
		if got := slotOf("checkpoints", Topic("checkpoints", key)); got != want {
			t.Errorf("key %q: slot %q, want %q", key, got, want)
		}
	}
}
