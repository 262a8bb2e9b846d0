package wal

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"
)

// As long as the server answers, silence is no reason to leave it; when it does
// not, the stream ends. (A server of its own clock: the real one may be late.)
func TestStreamOutlivesIdleness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const liveness, interval = 10 * time.Second, 4 * time.Second
		client, conn := net.Pipe()
		defer conn.Close()
		s := &Stream{conn: client, decoder: newDecoder(), liveness: liveness}
		s.frames.src = (*pacedReader)(s)
		s.received.Store(0x100)
		s.status = startStatusSender(client, &s.received, 0x100, interval)
		var silent atomic.Bool
		go answer(conn, &silent)
		defer func() { _ = s.Close(context.Background()) }()

		began := time.Now()
		for time.Since(began) < 10*liveness {
			if _, err := s.Next(t.Context()); err != nil {
				t.Fatalf("next, after %s: %v", time.Since(began), err)
			}
		}
		silent.Store(true)
		began = time.Now()
		var err error
		for err == nil {
			_, err = s.Next(t.Context())
		}
		if took := time.Since(began); !errors.Is(err, os.ErrDeadlineExceeded) || took < liveness-interval || took > liveness+deadlineSlack {
			t.Errorf("next: %v after %s; want a deadline exceeded after %s", err, took, liveness)
		}
	})
}

// answer is a server with nothing to send: until it falls silent it answers each
// status update that asks for it.
func answer(conn net.Conn, silent *atomic.Bool) {
	updates := frameReader{src: conn}
	for {
		_, update, err := updates.next()
		if err != nil {
			return
		}
		if asked := update[len(update)-1] == 1; !asked || silent.Load() {
			continue
		}
		keepalive := binary.BigEndian.AppendUint64([]byte{pglogrepl.PrimaryKeepaliveMessageByteID}, 0x100)
		keepalive = append(keepalive, make([]byte, 9)...) // its time; no answer wanted
		if _, err := conn.Write(frame(frameCopyData, keepalive)); err != nil {
			return
		}
	}
}
