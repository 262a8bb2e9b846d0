package wal

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/certificate"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// taped is a connection whose writes are kept, once there is a tape.
type taped struct {
	net.Conn
	tape *bytes.Buffer
}

func (c *taped) Write(b []byte) (int, error) {
	if c.tape != nil {
		return c.tape.Write(b)
	}
	return c.Conn.Write(b)
}

// replayed is a connection whose reads come from a reader, once there is one.
type replayed struct {
	net.Conn
	from io.Reader
}

func (c *replayed) Read(b []byte) (int, error) {
	if c.from != nil {
		return c.from.Read(b)
	}
	return c.Conn.Read(b)
}

// pieces is a socket: each read has a piece, as it arrived. Behind the last, a deadline passes.
type pieces [][]byte

func (p *pieces) Read(b []byte) (int, error) {
	if len(*p) == 0 {
		return 0, os.ErrDeadlineExceeded
	}
	n := copy(b, (*p)[0])
	if (*p)[0] = (*p)[0][n:]; len((*p)[0]) == 0 {
		*p = (*p)[1:]
	}
	return n, nil
}

// encrypted returns a TLS client that has nothing to read, and the bytes of records for it.
func encrypted(t *testing.T, texts ...string) (client *tls.Conn, below *replayed, wire []byte) {
	t.Helper()
	public, key, err := certificate.SelfSigned()
	must.OK(t, err)
	pair := must.Get(tls.X509KeyPair(public, key))(t)
	near, far := net.Pipe()
	t.Cleanup(func() { _ = near.Close(); _ = far.Close() })
	below, sender := &replayed{Conn: near}, &taped{Conn: far}
	client = tls.Client(below, &tls.Config{InsecureSkipVerify: true})
	server := tls.Server(sender, &tls.Config{Certificates: []tls.Certificate{pair}, SessionTicketsDisabled: true})
	shaken := make(chan error, 1)
	go func() { shaken <- server.Handshake() }()
	must.OK(t, client.Handshake())
	must.OK(t, <-shaken)
	sender.tape = new(bytes.Buffer)
	for _, text := range texts {
		must.Get(io.WriteString(server, text))(t)
	}
	return client, below, sender.tape.Bytes()
}

// The server sends a row as a record. A read returns all rows that have arrived, and no wait
// for the next one holds them back, wherever the socket's reads cut the records.
func TestRecords(t *testing.T) {
	texts := []string{"one", "two and more", "three"}
	_, _, wire := encrypted(t, texts...)
	for cut := range wire {
		client, below, wire := encrypted(t, texts...) // a record is read once
		socket := pieces{wire}
		if cut > 0 {
			socket = pieces{wire[:cut], wire[cut:]}
		}
		r := &records{client, &beneath{src: &socket, buf: make([]byte, tlsBuffer)}}
		below.from = r.beneath
		var got []string
		for b := make([]byte, 1000); ; {
			n, err := r.Read(b)
			if n > 0 {
				got = append(got, string(b[:n]))
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			must.OK(t, err)
		}
		if cut == 0 && len(got) != 1 {
			t.Errorf("three records that arrived together took %d reads: %q", len(got), got)
		}
		if strings.Join(got, "") != strings.Join(texts, "") || len(got) > 2 {
			t.Errorf("cut at %d: read %q", cut, got)
		}
	}
}
