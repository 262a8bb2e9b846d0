package broker_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/backoff"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

func TestATopicIsMissingAfterSeveralAnswersAndAWhile(t *testing.T) {
	for name, every := range map[string]time.Duration{
		"often":  10 * time.Millisecond,
		"seldom": time.Minute, // as a suspended process would
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var u broker.Unknown
				answers, since := 1, time.Now()
				for !u.Missing() {
					answers++
					must.OK(t, backoff.Sleep(t.Context(), every))
				}
				if took := time.Since(since); answers < broker.UnknownAnswers || took < broker.UnknownFor {
					t.Errorf("missing after %d answers in %v", answers, took)
				}
			})
		})
	}
}
