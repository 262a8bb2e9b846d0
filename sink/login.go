package sink

import (
	"context"
	"sync"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/broker"
)

// login finds out now and then whether brokers still let the connector in. A connection that
// is open goes on after a password was changed, or an account was closed.
type login struct {
	cfg   Options
	every time.Duration // 0: never

	mu     sync.Mutex
	tried  time.Time
	reason error // why not, at the last try; nil if they did
}

// refused is why brokers do not let the connector in, or nil. Their silence is
// no reason.
func (l *login) refused(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.every == 0 || l.cfg.SASL.Mechanism == "" && l.cfg.TLS.CertFile == "" || time.Since(l.tried) < l.every {
		return l.reason
	}
	l.tried, l.reason = time.Now(), nil
	if err := enter(ctx, l.cfg); isRefusal(err) {
		l.reason = err
	}
	return l.reason
}

// enter connects to a single broker anew.
func enter(ctx context.Context, cfg Options) error {
	opts, err := ClientOpts(cfg)
	if err != nil {
		return err
	}
	client, err := broker.ConnectOnce(opts...)
	if err != nil {
		return err
	}
	defer client.Close()
	if _, err = broker.Topics(ctx, broker.Impatient{Client: client}); err != nil {
		return Unreachable(cfg, err)
	}
	return nil
}
