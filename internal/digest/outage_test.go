package digest_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cdc-outbox/cdc-outbox/internal/digest"
)

const away, back = "away, will retry", "back again"

func outage(t *testing.T, level zapcore.Level, test func(o *digest.Outage, logs *observer.ObservedLogs)) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		core, logs := observer.New(level)
		test(digest.NewOutage(zap.New(core), back), logs)
	})
}

// refused is the error of an attempt: the time and the port on this side are others each time.
func refused(n int) error {
	return fmt.Errorf("no answer for %s: read 127.0.0.1:%d->127.0.0.1:5432: refused", time.Duration(n)*time.Minute, 40_000+n)
}

// An hour of attempts, each ten seconds.
func TestOutageIsLoggedAtGrowingDistances(t *testing.T) {
	outage(t, zap.InfoLevel, func(o *digest.Outage, logs *observer.ObservedLogs) {
		for n := range 360 {
			o.Failed(away, refused(n), zap.String("remedy", "start it"))
			pass(10 * time.Second)
		}
		var lines []line
		for _, at := range []int{0, 3, 9, 21, 45, 93, 153, 213, 273, 333} { // 30 s, then 1, 2, 4, 8 and 10 minutes
			fields := map[string]any{"error": refused(at).Error(), "remedy": "start it"}
			if at > 0 {
				fields["failed_attempts"], fields["since"] = int64(at+1), time.Duration(at)*10*time.Second
			}
			lines = append(lines, line{zap.WarnLevel, away, fields})
		}
		want(t, logs, lines...)

		o.Over()
		o.Over()
		want(t, logs, line{zap.InfoLevel, back, map[string]any{"failed_attempts": int64(360), "after": time.Hour}})

		o.Failed(away, refused(0))
		want(t, logs, line{zap.WarnLevel, away, map[string]any{"error": refused(0).Error()}})
	})
}

func TestOutageTellsEachNewCauseAtOnce(t *testing.T) {
	outage(t, zap.InfoLevel, func(o *digest.Outage, logs *observer.ObservedLogs) {
		starting := errors.New("starting up")
		for n := range 4 {
			o.Failed(away, refused(n))
			o.Failed(away, starting)
		}
		want(t, logs,
			line{zap.WarnLevel, away, map[string]any{"error": refused(0).Error()}},
			line{zap.WarnLevel, away, map[string]any{"error": "starting up", "failed_attempts": int64(2), "since": time.Duration(0)}})
	})
}

func TestOutageTellsFewCausesApart(t *testing.T) {
	outage(t, zap.InfoLevel, func(o *digest.Outage, logs *observer.ObservedLogs) {
		for n := range 1000 {
			o.Failed(away, fmt.Errorf("cause %c", 'a'+rune(n)))
		}
		if n := logs.Len(); n > 20 {
			t.Errorf("%d lines for as many causes as there are", n)
		}
	})
}

func TestOutageHasEachAttemptAtDebugLevel(t *testing.T) {
	outage(t, zap.DebugLevel, func(o *digest.Outage, logs *observer.ObservedLogs) {
		o.Failed(away, refused(0))
		o.Failed(away, refused(1))
		want(t, logs,
			line{zap.WarnLevel, away, map[string]any{"error": refused(0).Error()}},
			line{zap.DebugLevel, away, map[string]any{"error": refused(1).Error(), "failed_attempts": int64(2), "since": time.Duration(0)}})
	})
}
