package catalog

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Sender is the server's process that sends a stream, and what it does at
// present.
type Sender struct {
	PID int32
	Waiting
}

// Works reports whether the process is busy, or waits for something in the
// server. Otherwise the process waits for its client, or has nothing to send:
// then it has answered, and the answer is on the way.
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

// errNotSending means that the process does not send the slot any more.
var errNotSending = errors.New("the server's process that sent the slot is gone")

// AskSender asks, on a separate connection to the address the stream comes
// from, what the process pid does, which sends the slot.
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

// OwnSender is the server's process behind a replication connection.
type OwnSender struct {
	PID int32
	// Timeout is its wal_sender_timeout: after so long without a word from us
	// the process ends, and with it its hold on the slot. 0: it does not.
	Timeout time.Duration
}

// ReadOwnSender asks the process itself, before the stream, and fixes its
// wal_sender_timeout at the present value, so a change of the server's
// configuration does not change it under us.
func ReadOwnSender(ctx context.Context, conn *pgconn.PgConn) (s OwnSender, err error) {
	results, err := conn.Exec(ctx, `SELECT pg_backend_pid(), `+milliseconds("wal_sender_timeout")+`,
		set_config('wal_sender_timeout', current_setting('wal_sender_timeout'), false)`).ReadAll()
	if err != nil {
		return s, fmt.Errorf("read wal_sender_timeout: %w", err)
	}
	row := results[0].Rows[0]
	pid, err := strconv.ParseInt(string(row[0]), 10, 32)
	if err != nil {
		return s, fmt.Errorf("read wal_sender_timeout: %w", err)
	}
	timeout, err := strconv.ParseInt(string(row[1]), 10, 32)
	if err != nil {
		return s, fmt.Errorf("read wal_sender_timeout: %w", err)
	}
	return OwnSender{int32(pid), time.Duration(timeout) * time.Millisecond}, nil
}

// Holds reports whether the process holds the slot.
func (s OwnSender) Holds(slot Slot) bool { return slot.Active && slot.ActivePID == s.PID }

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
