package dynamodb

import (
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/hook"
)

func init() {
	hook.DynamoDBExact = func(store any) {
		c := &store.(*Store).clock
		c.resolution, c.drift = 0, 0
	}
	hook.DynamoDBUnknown = func(store any) (time.Duration, bool) {
		now, ok := store.(*Store).clock.read()
		return now.latest.Sub(now.earliest), ok
	}
}
