package catalog

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Sender is the server's process that sends a stream, and what it does meanwhile.
type Sender struct {
	PID int32
	Waiting
}

// Works reports whether the process is busy, or waits for something in the server.
// Otherwise it waits for its client, or has nothing to send: then it has answered,
// and the answer has not arrived.
func (s Sender) Works() bool {
	return !strings.HasPrefix(s.Event, "Client ") && !strings.HasPrefix(s.Event, "Activity ")
}

// String is for a log or a message.
func (s Sender) String() string {
	switch {
	case s.Event == "" && len(s.For) == 0:
		return fmt.Sprintf("process %d works", s.PID)
	case len(s.For) == 0 && s.Works():
		return fmt.Sprintf("process %d works (%s)", s.PID, s.Event)
	}
	return fmt.Sprintf("process %d waits for %s", s.PID, s.Waiting)
}

// errNotSending means that the slot is not sent by the process any more.
var errNotSending = errors.New("the server's process that sent the slot is gone")

// AskSender asks, on a connection of its own to the address that a stream comes from,
// what the process pid does, which sends the slot.
func AskSender(ctx context.Context, url string, at net.Addr, slot string, pid int32) (s Sender, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	conn, err := ConnectBeside(ctx, url, at)
	if err != nil {
		return s, err
	}
	defer Close(conn)
	return readSender(ctx, conn, slot, pid)
}

func readSender(ctx context.Context, conn *pgx.Conn, slot string, pid int32) (s Sender, err error) {
	read, exists, err := ReadSlot(ctx, conn, slot)
	if err == nil && (!exists || read.ActivePID != pid) {
		err = errNotSending
	}
	if err != nil {
		return s, err
	}
	s.PID = pid
	s.Waiting, err = ReadWaiting(ctx, conn, pid)
	return s, err
}
