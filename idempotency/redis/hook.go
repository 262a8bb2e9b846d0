package redis

import "github.com/cdc-outbox/cdc-outbox/internal/base/hook"

func init() {
	hook.RedisYield = func(store any, yield func(joined func() int)) {
		g := store.(*Store).gatherer
		g.yield = func() { yield(g.joined) }
	}
}
