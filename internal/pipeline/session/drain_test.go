package session

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestDrain(t *testing.T) {
	always := func(topics ...string) func(time.Duration) []string {
		return func(time.Duration) []string { return topics }
	}
	for name, tt := range map[string]struct {
		done    time.Duration // 0: never
		missing func(time.Duration) []string
		took    time.Duration // at most
		err     string        // "" for none
	}{
		"drained":              {done: time.Minute, missing: always(), took: time.Minute},
		"drained by now":       {done: time.Nanosecond, missing: always("a"), took: look},
		"a broker is away":     {missing: always(), took: time.Hour, err: errTimeout.Error()},
		"a topic is missing":   {missing: always("a", "b"), took: 2 * topicGrace, err: "topic does not exist: a, b"},
		"a topic is there now": {done: time.Minute, missing: func(at time.Duration) []string { return []string{"a"}[:min(1, max(0, int(topicGrace-at)))] }, took: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, done := time.Now(), make(chan struct{})
				if tt.done > 0 {
					time.AfterFunc(tt.done, func() { close(done) })
				}
				err := Drain(t.Context(), done, time.Hour, func() []string { return tt.missing(time.Since(began)) })
				if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
					t.Errorf("Wait = %v, want %q", err, tt.err)
				}
				if took := time.Since(began); took > tt.took { // in fake time
					t.Errorf("took %v", took)
				}
				if errors.Is(err, errTimeout) && time.Since(began) < time.Hour {
					t.Error("gave up early")
				}
			})
		})
	}
}

// The last words of a hurried stop are short, and no longer than of another.
func TestPatience(t *testing.T) {
	ctx, hurry := WithHaste(t.Context())
	for _, of := range []context.Context{t.Context(), ctx} {
		if got := Patience(of, time.Minute); got != time.Minute {
			t.Errorf("%s without a hurry", got)
		}
	}
	hurry()
	for limit, want := range map[time.Duration]time.Duration{time.Minute: hurried, time.Millisecond: time.Millisecond} {
		if got := Patience(ctx, limit); got != want {
			t.Errorf("%s in a hurry, want %s", got, want)
		}
	}
}

// A stop may be hurried before the wait, and within. Less time left stays less.
func TestDrainInHaste(t *testing.T) {
	for name, tt := range map[string]struct{ hurry, timeout, took time.Duration }{
		"before":             {0, time.Hour, hurried},
		"in its midst":       {time.Minute, time.Hour, time.Minute + hurried},
		"shortly before end": {time.Minute - time.Millisecond, time.Minute, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				ctx, hurry := WithHaste(t.Context())
				time.AfterFunc(tt.hurry, hurry)
				time.AfterFunc(tt.hurry, hurry)
				err := Drain(ctx, nil, tt.timeout, func() []string { return nil })
				if took := time.Since(began); !errors.Is(err, errTimeout) || took != tt.took { // in fake time
					t.Errorf("Drain = %v after %s, want %s", err, took, tt.took)
				}
			})
		})
	}
}

func TestEnding(t *testing.T) {
	for name, tt := range map[string]struct {
		limit, hurry, want time.Duration // hurry 0: at once, negative: never
	}{
		"in patience":               {time.Minute, -1, time.Minute},
		"in a hurry":                {time.Minute, 0, hurried},
		"hurried in between":        {time.Minute, time.Second, time.Second + hurried},
		"hurried just before":       {time.Minute, time.Minute - hurried/2, time.Minute},
		"in a hurry, hardly a time": {time.Millisecond, 0, time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ended, end := context.WithCancel(t.Context())
				end()
				ctx, hurry := WithHaste(ended)
				if tt.hurry >= 0 {
					time.AfterFunc(tt.hurry, hurry)
				}
				began := time.Now()
				ending, cancel := Ending(ctx, tt.limit)
				defer cancel()
				<-ending.Done()
				if took := time.Since(began); took != tt.want {
					t.Errorf("ended after %s, want %s", took, tt.want)
				}
			})
		})
	}
}
