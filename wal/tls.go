package wal

import (
	"crypto/tls"
	"errors"
	"io"
)

// tlsBuffer is how much is read at once beneath TLS.
const tlsBuffer = 128 << 10

// beneath reads for the TLS layer, which asks for a record at a time: the server sends each row
// as a record of its own, so a read of the socket has many.
type beneath struct {
	src  io.Reader // of the socket
	buf  []byte
	r, w int   // buf[r:w] is read from src and not yet returned
	here bool  // nothing is to be read from src
	err  error // of src
}

// notHere is the only error the TLS layer sees. It is temporary as that of a deadline is, so
// that the TLS layer keeps the part of a record that it has, and may be asked again. Other
// errors, as that of a context that ends, would be its errors for ever.
type notHere struct{}

func (notHere) Error() string   { return "no more has arrived" }
func (notHere) Timeout() bool   { return true }
func (notHere) Temporary() bool { return true }

// Read implements io.Reader.
func (b *beneath) Read(p []byte) (int, error) {
	if b.r == b.w {
		if b.here {
			return 0, notHere{}
		}
		b.r = 0
		if b.w, b.err = b.src.Read(b.buf); b.w == 0 {
			return 0, notHere{}
		}
	}
	n := copy(p, b.buf[b.r:b.w])
	b.r += n
	return n, nil
}

// records is a TLS connection as a source of frames: a read returns all records that have
// arrived, as a read of a socket returns all bytes.
type records struct {
	conn    *tls.Conn
	beneath *beneath
}

// Read implements io.Reader.
func (r *records) Read(p []byte) (n int, err error) {
	r.beneath.here = false
	n, err = r.conn.Read(p)
	for r.beneath.here = true; err == nil && n < len(p); {
		var more int
		more, err = r.conn.Read(p[n:])
		n += more
	}
	if _, end := errors.AsType[notHere](err); end {
		err, r.beneath.err = r.beneath.err, nil
	}
	return n, err
}
