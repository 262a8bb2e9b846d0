package broker_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/broker"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// A client waiting for such a broker does not ask the others meanwhile.
func TestBrokerThatSaysNothingIsLeftAlone(t *testing.T) {
	addr, _ := kafkatest.Silent(t)
	dial := broker.Dialer(new(net.Dialer).DialContext)
	conn := must.Get(dial(t.Context(), "tcp", addr))(t)
	defer conn.Close()
	must.Get(conn.Write([]byte{1}))(t)
	must.OK(t, conn.SetReadDeadline(time.Now().Add(time.Hour)))
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("Read = %v, want the end of the wait for a first answer", err)
	}
	if _, err := dial(t.Context(), "tcp", addr); !errors.Is(err, syscall.EHOSTDOWN) {
		t.Errorf("dial = %v, want EHOSTDOWN", err)
	}
}

// talkative is a connection on which something has come.
type talkative struct {
	net.Conn
	deadline time.Time
}

func (c *talkative) SetReadDeadline(t time.Time) error { c.deadline = t; return nil }
func (c *talkative) Read(p []byte) (int, error)        { return len(p), nil }

// Later answers may take as long as the client allows: a transaction's end waits
// for other brokers.
func TestBrokerThatAnsweredMayTakeItsTime(t *testing.T) {
	below := &talkative{}
	dial := broker.Dialer(func(context.Context, string, string) (net.Conn, error) { return below, nil })
	conn := must.Get(dial(t.Context(), "tcp", address()))(t)
	later := time.Now().Add(time.Hour)
	must.OK(t, conn.SetReadDeadline(later))
	if !below.deadline.Before(later) {
		t.Errorf("the first answer may take until %v", below.deadline)
	}
	must.Get(conn.Read(make([]byte, 1)))(t)
	must.OK(t, conn.SetReadDeadline(later))
	if !below.deadline.Equal(later) {
		t.Errorf("the second answer may take until %v, not %v", below.deadline, later)
	}
}

var addresses atomic.Int32

// address returns a new address: the knowledge of silences outlives a test, and
// the test's clock.
func address() string { return fmt.Sprintf("192.0.2.1:%d", addresses.Add(1)) }

// slow is a broker that takes so long for the first answer.
func slow(first time.Duration) broker.DialFunc {
	return func(context.Context, string, string) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			defer far.Close()
			if _, err := far.Read(make([]byte, 1)); err != nil {
				return
			}
			<-time.After(first)
			_, _ = far.Write([]byte{1})
		}()
		return near, nil
	}
}

// ask connects to a broker and waits for the first answer, as long as franz-go does.
func ask(t *testing.T, dial broker.DialFunc, addr string) error {
	t.Helper()
	conn, err := dial(t.Context(), "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	must.Get(conn.Write([]byte{1}))(t)
	must.OK(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
	_, err = conn.Read(make([]byte, 1))
	return err
}

// Otherwise nobody would ever be connected to a busy cluster. Each attempt is a new
// client's: a failed claim ends the client.
func TestSlowBrokerIsConnectedToInTheEnd(t *testing.T) {
	for _, first := range []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second} {
		t.Run(first.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				addr := address()
				for began := time.Now(); ask(t, broker.Dialer(slow(first)), addr) != nil; {
					if time.Since(began) > time.Minute {
						t.Fatal("not connected to")
					}
					<-time.After(time.Second)
				}
				if err := ask(t, broker.Dialer(slow(first)), addr); err != nil {
					t.Errorf("the next connection: %v, want one that is given as much time", err)
				}
			})
		})
	}
}

// A recovered broker has as little time as at first.
func TestSlowBrokerThatRecoversIsExpectedToBeFast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const never = 30 * time.Second // longer than anybody waits
		addr, first := address(), never
		dial := broker.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
			return slow(first)(ctx, network, addr)
		})
		silence := func() time.Duration {
			began := time.Now()
			if err := ask(t, dial, addr); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("ask = %v, want the end of the wait for a first answer", err)
			}
			took := time.Since(began)
			<-time.After(time.Minute)
			return took
		}
		short, long := silence(), silence()
		first = 0
		must.OK(t, ask(t, dial, addr))
		first = never
		if again := silence(); long <= short || again != short {
			t.Errorf("waited %v, %v, and after an answer %v", short, long, again)
		}
	})
}

// With TLS a silent broker says nothing in the handshake, before there is a
// connection.
func TestBrokerThatDoesNotShakeHandsIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial := broker.Dialer(func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		addr, began := address(), time.Now()
		if err := ask(t, dial, addr); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) >= 10*time.Second {
			t.Errorf("after %v: %v, want the end of the wait for a first answer, before franz-go's", time.Since(began), err)
		}
		if err := ask(t, dial, addr); !errors.Is(err, syscall.EHOSTDOWN) {
			t.Errorf("dial = %v, want EHOSTDOWN", err)
		}
	})
}
