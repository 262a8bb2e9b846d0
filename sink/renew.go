package sink

import (
	"context"
	"fmt"
	"net"
	"sync"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/broker"
)

// renew replaces the client if a broker refused it a producer id, because such a
// client can never write (see broker.Refused). Callers know the outcome of every
// record, so nothing is in flight. The new client knows no topic yet: unwritten
// events must be placed again, see place.
//
// An error that only an operator can fix ends the delivery after a few times in a
// row. After every other error renew asks again, for as long as ctx lives.
func (k *Kafka) renew(ctx context.Context) (renewed bool, err error) {
	refusal := broker.Refused(ctx, k.client)
	if refusal == nil || judge(refusal) == lossy {
		k.numbered()
		return false, nil
	}
	refused := fmt.Errorf("get a producer id: %w", refusal)
	k.refused++
	if judge(refusal) == misconfigured && k.refused >= broker.Refusals {
		return false, failure.Configf(writeRemedy(refusal, k.cfg, ""), "%w", refused)
	}
	k.complain("Kafka gave the client no producer id, retrying with a new one", zap.Error(refused))
	if err := k.replaceClient(); err != nil {
		return false, err
	}
	return true, k.refusedWaits.Pause(ctx)
}

// replaceClient takes a new client, without a producer id or topics. No record
// may be in flight.
func (k *Kafka) replaceClient() error {
	client, err := broker.Connect(k.clientOpts...)
	if err != nil {
		return fmt.Errorf("renew the Kafka client: %w", err)
	}
	k.client.Close()
	k.client = client
	k.partitions.reset()
	return nil
}

// numbered notes that the client has a producer id.
func (k *Kafka) numbered() {
	k.refused = 0
	k.refusedWaits.Reset()
}

// writeBarrier holds back the client's writes while a round is being handed over.
//
// The previous flush may have left a loop of the client running. The loop may
// take the first records of a batch before the others are buffered, and send
// them as a batch of their own. If the broker refused the first part before the
// rest was buffered, the rest would start a new sequence and be written ahead.
// With the barrier the refusal comes later, and the client then fails everything
// buffered for the partition.
type writeBarrier struct{ mu sync.RWMutex }

// close holds all writes until open. It does not wait for writes in progress:
// their bytes were encoded before.
func (b *writeBarrier) close() { b.mu.Lock() }

func (b *writeBarrier) open() { b.mu.Unlock() }

// dialer returns dial with the barrier in each of its connections.
func (b *writeBarrier) dialer(dial broker.DialFunc) broker.DialFunc {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &barredConn{Conn: conn, barrier: b}, nil
	}
}

type barredConn struct {
	net.Conn
	barrier *writeBarrier
}

// Write implements net.Conn.
func (c *barredConn) Write(p []byte) (int, error) {
	c.barrier.mu.RLock()
	c.barrier.mu.RUnlock() //nolint:staticcheck // passing through is the point
	return c.Conn.Write(p)
}
