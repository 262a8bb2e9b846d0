package transform

import (
	"math/rand/v2"
	"testing"
	"time"
)

// The text of a second is kept for all times within the second.
func TestTimesOfHeadersAreThoseOfTheirFormat(t *testing.T) {
	at := func(s string) time.Time {
		v, err := time.Parse(time.RFC3339Nano, s)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	times := []time.Time{
		at("2026-11-27T12:00:00+02:00"), at("2026-11-27T10:00:00.000001Z"), at("2026-11-27T10:00:00.999999999Z"),
		at("2026-11-27T10:00:01Z"), at("1969-12-31T23:59:59.5Z"), at("0001-02-03T04:05:06.7Z"), time.Unix(1<<40, 0),
	}
	for range 1000 {
		times = append(times, time.Unix(rand.Int64N(3)-1, rand.Int64N(1e9)))
	}
	var kept secondText
	for _, v := range times {
		want := v.UTC().Format("2006-01-02T15:04:05.000000Z")
		if got := string(kept.append(nil, v)); got != want {
			t.Errorf("append(%v) = %s, want %s", v, got, want)
		}
		if got := string(appendTime(nil, v)); got != want {
			t.Errorf("appendTime(%v) = %s, want %s", v, got, want)
		}
	}
}

// The values of a transaction lie side by side in memory. An append to a value must
// not write into the next.
func TestValuesOfATransactionDoNotOverlap(t *testing.T) {
	var tx transactionHeaders
	ev := Event{XID: 42, CommitTime: time.Unix(1, 0)}
	ev.Position.CommitLSN = 7
	lsn, xid, at := tx.of(&ev)
	_, _ = append(lsn, "xxxxxxxx"...), append(xid, "yyyyyyyy"...)
	if string(lsn) != "0/7" || string(xid) != "42" || string(at) != "1970-01-01T00:00:01.000000Z" {
		t.Errorf("got %s, %s, %s", lsn, xid, at)
	}
}
