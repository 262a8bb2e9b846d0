package idempotency

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestStuckWorkIsTold(t *testing.T) {
	for name, test := range map[string]struct {
		context, work time.Duration // how long they last
		want          []string
	}{
		"ends before its context":   {time.Hour, time.Minute, nil},
		"heeds its context":         {time.Minute, time.Minute + time.Second, nil},
		"goes on after its context": {time.Minute, 10 * time.Minute, []string{"true after 1m5s", "false after 10m0s"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), test.context)
				defer cancel()
				begun := time.Now()
				var got []string
				stop := watchStuck(ctx, 5*time.Second, func(stuck bool) {
					text := "false"
					if stuck {
						text = "true"
					}
					got = append(got, text+" after "+time.Since(begun).String())
				})
				<-time.After(test.work)
				synctest.Wait()
				stop()
				<-time.After(time.Hour)
				if len(got) != len(test.want) || len(got) == 2 && (got[0] != test.want[0] || got[1] != test.want[1]) {
					t.Errorf("%q, want %q", got, test.want)
				}
			})
		})
	}
}
