package store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// link remembers the last error of a connection to a broker. The client itself
// only reports too many tries, or too long a time. A link is a
// kgo.HookBrokerConnect and HookBrokerE2E.
type link struct {
	mu      sync.Mutex
	trouble error
}

// OnBrokerConnect implements kgo.HookBrokerConnect.
func (l *link) OnBrokerConnect(broker kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	l.note(broker, err)
}

// OnBrokerE2E implements kgo.HookBrokerE2E.
func (l *link) OnBrokerE2E(broker kgo.BrokerMetadata, _ int16, e2e kgo.BrokerE2E) {
	l.note(broker, e2e.Err())
}

func (l *link) note(broker kgo.BrokerMetadata, err error) {
	if err == nil || errors.Is(err, context.Canceled) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trouble = fmt.Errorf("broker %s: %w", net.JoinHostPort(broker.Host, strconv.Itoa(int(broker.Port))), err)
}

func (l *link) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trouble = nil
}

// explain adds the trouble to an error that is not a broker's answer.
func (l *link) explain(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, answered := errors.AsType[*kerr.Error](err); err == nil || answered || l.trouble == nil {
		return err
	}
	return fmt.Errorf("%w; %w", err, l.trouble)
}
