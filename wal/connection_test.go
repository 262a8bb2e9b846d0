package wal

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/certificate"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// connect opens an ordinary connection for a single test and runs statements.
func connect(t *testing.T, url string, statements ...string) *pgx.Conn {
	t.Helper()
	conn := must.Get(catalog.Connect(pgtest.Context(t), url))(t)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	pgtest.Execute(t, conn, "RESET search_path") // statements of tests are an application's
	pgtest.Execute(t, conn, statements...)
	return conn
}

// replication opens a replication connection for a single test.
func replication(t *testing.T, url string) *pgconn.PgConn {
	t.Helper()
	conn := must.Get(catalog.ConnectReplication(pgtest.Context(t), url))(t)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// stalled is a connection whose next write, once armed, returns only when the
// answer was read and somebody reads on: pgconn does so in the background of a
// write taking longer than 15 ms.
type stalled struct {
	net.Conn
	mu    sync.Mutex
	again *sync.Cond
	armed bool
	reads int // begun
}

func (s *stalled) Read(b []byte) (int, error) {
	s.mu.Lock()
	s.reads++
	s.mu.Unlock()
	s.again.Broadcast()
	return s.Conn.Read(b)
}

func (s *stalled) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := s.reads
	n, err := s.Conn.Write(b)
	for s.armed && s.reads < from+2 {
		s.again.Wait()
	}
	s.armed = false
	return n, err
}

// A connection is not taken over before the end of a read in the background: the reader
// would take the server's answer away.
func TestStreamTakesOverAConnectionThatIsBeingRead(t *testing.T) {
	s := newSource(t, pgtest.Shared(t), `CREATE TABLE t (id int)`)
	cfg := must.Get(pgconn.ParseConfig(s.url))(t)
	cfg.RuntimeParams["replication"] = "database"
	dial := cfg.DialFunc
	var slow *stalled
	cfg.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		slow = &stalled{Conn: conn}
		slow.again = sync.NewCond(&slow.mu)
		return slow, err
	}
	conn := must.Get(pgconn.ConnectConfig(pgtest.Context(t), cfg))(t)
	slow.mu.Lock()
	slow.armed = true
	slow.mu.Unlock()
	must.Get(conn.Exec(pgtest.Context(t), "IDENTIFY_SYSTEM").ReadAll())(t)
	stream := must.Get(Open(pgtest.Context(t), conn, s.options))(t)
	defer func() { _ = stream.Close(pgtest.Context(t)) }()
	s.exec(t, `INSERT INTO t VALUES (1)`)
	for {
		msg := must.Get(stream.Next(pgtest.Context(t)))(t)
		if msg.Kind == Insert {
			return
		}
	}
}

// As long as the server answers, silence is no reason to leave; without an answer, the
// stream ends. (The test has a server in a bubble of time: a real server may be late.)
func TestStreamOutlivesIdleness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const liveness, interval = 10 * time.Second, 4 * time.Second
		client, conn := net.Pipe()
		defer conn.Close()
		s := &Stream{conn: client, socket: client, decoder: newDecoder(), liveness: liveness}
		s.frames.src = (*pacedReader)(s)
		s.received.Store(0x100)
		s.status = startStatusSender(client, &s.received, 0x100, interval, nil)
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

// answer is a server with nothing to send: until silent, it answers each status update
// asking for an answer.
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
		keepalive = append(keepalive, make([]byte, 9)...) // the time; no answer wanted
		if _, err := conn.Write(frame(frameCopyData, keepalive)); err != nil {
			return
		}
	}
}

// encryptedServer is a server with TLS, and its certificate's file. Role cdc logs in over TLS
// alone, by SCRAM.
func encryptedServer(t *testing.T) (server *pgtest.Server, certificateFile string) {
	t.Helper()
	public, key, err := certificate.SelfSigned()
	must.OK(t, err)
	certificateFile = filepath.Join(t.TempDir(), "ca.crt")
	must.OK(t, os.WriteFile(certificateFile, public, 0o600))
	return pgtest.Start(t, pgtest.Setting("ssl", "on"),
		pgtest.Setting("ssl_cert_file", "test.crt"), pgtest.File("test.crt", public),
		pgtest.Setting("ssl_key_file", "test.key"), pgtest.File("test.key", key),
		pgtest.Setting("password_encryption", "scram-sha-256"),
		pgtest.File("pg_hba.conf", []byte("hostssl all cdc all scram-sha-256\nhostnossl all cdc all reject\nhost all all all trust\nlocal all all trust\n"))), certificateFile
}

// A verified server, a password bound to the channel, and TLS from the first byte: the
// buffer beneath TLS is in the way of none.
func TestStreamOverEveryTLS(t *testing.T) {
	server, ca := encryptedServer(t)
	for name, parameters := range map[string]string{
		"verify-full":     "sslmode=verify-full&sslrootcert=" + ca,
		"channel binding": "sslmode=require&channel_binding=require",
		"direct":          "sslmode=verify-full&sslnegotiation=direct&sslrootcert=" + ca,
	} {
		t.Run(name, func(t *testing.T) {
			s := newSource(t, server, `CREATE TABLE t (id int)`,
				`DO $$ BEGIN CREATE ROLE cdc LOGIN REPLICATION PASSWORD 'bound'; EXCEPTION WHEN duplicate_object THEN END $$`)
			var knows bool
			must.OK(t, s.sql.QueryRow(t.Context(), `SELECT current_setting('server_version_num')::int >= 170000`).Scan(&knows))
			if name == "direct" && !knows {
				t.Skip("PostgreSQL has sslnegotiation=direct from 17 on")
			}
			s.exec(t, `INSERT INTO t SELECT generate_series(1, 1000)`)
			address := must.Get(url.Parse(s.url))(t)
			address.User, address.RawQuery = url.UserPassword("cdc", "bound"), parameters
			s.url = address.String()
			r := s.open(t, 0)
			got := r.all(t, s)
			if n := len(lines(got)); n != 1001 {
				t.Errorf("%d rows and commits; want 1001", n)
			}
			end := commitOf(t, got).End
			r.Confirm(end)
			r.close(t)
			s.wantConfirmed(t, end)
		})
	}
}

// A deadline that ends a wait beneath TLS leaves the connection usable: the stream can end in
// good order.
func TestStreamOverTLS(t *testing.T) {
	server, _ := encryptedServer(t)
	s := newSource(t, server, `CREATE TABLE t (id int)`)
	s.exec(t, `INSERT INTO t SELECT generate_series(1, 1000)`)
	s.url += "?sslmode=require"

	r := s.open(t, 0)
	if _, ok := r.conn.(*tls.Conn); !ok {
		t.Fatalf("the connection is a %T", r.conn)
	}
	got := r.all(t, s)
	if n := len(lines(got)); n != 1001 {
		t.Errorf("%d rows and commits; want 1001", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.untilItFails(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("next: %v; want %v", err, context.Canceled)
	}
	end := commitOf(t, got).End
	r.Confirm(end)
	r.close(t)
	s.wantConfirmed(t, end)
}
