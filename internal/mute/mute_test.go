package mute_test

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/mute"
	"github.com/cdc-outbox/cdc-outbox/internal/must"
)

// A client that waits for such a broker does not ask the others meanwhile.
func TestBrokerThatSaysNothingIsLeftAlone(t *testing.T) {
	addr, _ := kafkatest.Silent(t)
	dial := mute.Dialer(new(net.Dialer).DialContext)
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
	dial := mute.Dialer(func(context.Context, string, string) (net.Conn, error) { return below, nil })
	conn := must.Get(dial(t.Context(), "tcp", "broker:1"))(t)
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
