package digest_test

import (
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cdc-outbox/cdc-outbox/internal/digest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var skipped = digest.Kind{Level: zap.WarnLevel, Message: "event skipped", Detail: "null_key"}

// bubble runs the test with a clock of its own.
func bubble(t *testing.T, level zapcore.Level, test func(l *digest.Log, logs *observer.ObservedLogs)) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		core, logs := observer.New(level)
		test(digest.New(zap.New(core)), logs)
	})
}

// line is everything logged.
type line struct {
	level   zapcore.Level
	message string
	fields  map[string]any
}

func want(t *testing.T, logs *observer.ObservedLogs, lines ...line) {
	t.Helper()
	var got []line
	for _, e := range logs.TakeAll() {
		got = append(got, line{e.Level, e.Message, e.ContextMap()})
	}
	if !reflect.DeepEqual(got, lines) {
		t.Errorf("logged %v, want %v", got, lines)
	}
}

func id(n int) zap.Field { return zap.Int("id", n) }

func summary(k digest.Kind, more, first, last int) line {
	fields := map[string]any{
		"more":  int64(more),
		"first": map[string]any{"id": int64(first)}, "last": map[string]any{"id": int64(last)},
	}
	if k.Detail != "" {
		fields["of"] = k.Detail
	}
	return line{k.Level, k.Message, fields}
}

func single(k digest.Kind, n int) line {
	return line{k.Level, k.Message, map[string]any{"id": int64(n)}}
}

func TestFirstAtOnceOthersSummedUp(t *testing.T) {
	bubble(t, zap.InfoLevel, func(l *digest.Log, logs *observer.ObservedLogs) {
		other := digest.Kind{Level: zap.ErrorLevel, Message: "update ignored", Detail: "public.outbox"}
		for n := range 100_000 {
			l.Note(skipped, id(n))
		}
		l.Note(other, id(-1))
		want(t, logs, single(skipped, 0), single(other, -1))

		pass(digest.Interval)
		want(t, logs, summary(skipped, 99_999, 1, 99_999))

		l.Note(skipped, id(100_000)) // still within a minute of the last line
		l.Note(other, id(-2))        // long quiet: the first once more
		want(t, logs, single(other, -2))

		pass(digest.Interval)
		want(t, logs, summary(skipped, 1, 100_000, 100_000))
		pass(3 * digest.Interval)
		want(t, logs)
		l.Note(skipped, id(7))
		want(t, logs, single(skipped, 7))
		l.Flush()
	})
}

func TestFlushSumsUpAndEnds(t *testing.T) {
	bubble(t, zap.InfoLevel, func(l *digest.Log, logs *observer.ObservedLogs) {
		for n := range 3 {
			l.Note(skipped, id(n))
		}
		l.Flush()
		want(t, logs, single(skipped, 0), summary(skipped, 2, 1, 2))
		pass(2 * digest.Interval)
		l.Flush()
		want(t, logs)
	})
}

func TestEachIsThereAtDebugLevel(t *testing.T) {
	bubble(t, zap.DebugLevel, func(l *digest.Log, logs *observer.ObservedLogs) {
		l.Note(skipped, id(0))
		l.Note(skipped, id(1))
		want(t, logs, single(skipped, 0), line{zap.DebugLevel, skipped.Message, map[string]any{"id": int64(1)}})
		l.Flush()
	})
}

// Details that somebody else chooses cost neither memory nor log.
func TestKindsAreBounded(t *testing.T) {
	bubble(t, zap.InfoLevel, func(l *digest.Log, logs *observer.ObservedLogs) {
		for n := range 10_000 {
			l.Note(digest.Kind{Level: zap.WarnLevel, Message: "m", Detail: fmt.Sprint(n)}, id(n))
		}
		if n := logs.Len(); n > 70 {
			t.Errorf("%d lines for as many kinds as somebody likes", n)
		}
		logs.TakeAll()
		pass(digest.Interval)
		want(t, logs, summary(digest.Kind{Level: zap.WarnLevel, Message: "m"}, 10_000-65, 65, 9999))
		l.Flush()
	})
}

// pass lets the bubble's clock go on by d.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
