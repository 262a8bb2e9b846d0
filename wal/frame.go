package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

const (
	// chunkSize is how much is read at once. A chunk lives as long as a value
	// in it is in flight.
	chunkSize = 128 << 10
	// idleSize is the size of a chunk while little arrives: less than a chunk in idleTime, and
	// not as much as idleSize in busyTime.
	idleSize = 8 << 10
	idleTime = 10 * time.Second
	busyTime = time.Second
	// maxFrame is more than PostgreSQL ever sends (a field is at most 1 GiB); a
	// longer frame means the stream is garbled.
	maxFrame = 1<<30 + 1<<20
	// frameHeader is the type byte and the length, which counts itself.
	frameHeader = 5
	// headSize is how much of a large frame's body arrives before the rest is
	// judged: a name of PostgreSQL (63 bytes), and the part before.
	headSize = 128
)

var errGarbled = errors.New("garbled frame from the server")

// frameReader cuts the server's byte stream into protocol frames (PostgreSQL
// documentation, "Message Formats") without copying: a frame's body is a slice
// of a chunk. No byte of a chunk is written twice before the chunk goes back to
// the pool. Without a pool, bodies may be kept for as long as the caller likes.
type frameReader struct {
	src   io.Reader
	pool  *chunkPool // may be nil
	chunk *Chunk     // of buf
	begun time.Time  // when buf was begun
	base  int64      // bytes of the chunks before
	buf   []byte
	r, w  int // buf[r:w] is read from src and not yet returned

	// unwanted says of a frame larger than a chunk, by the first bytes of the
	// body, whether the rest is thrown away on arrival. unwanted may be nil.
	unwanted func(kind byte, head []byte) bool
	cut      bool // the last frame was unwanted: the body ends after headSize bytes
	drop     int  // bytes of the frame still to be thrown away
}

// place is where the next frame begins, counted over all chunks as if they lay
// end to end. place never goes back.
func (f *frameReader) place() int64 { return f.base + int64(f.r) }

// next returns the next frame, reading from src only when no whole frame is
// buffered.
func (f *frameReader) next() (kind byte, body []byte, err error) {
	if err := f.throwAway(); err != nil { // after an error in the middle
		return 0, nil, err
	}
	if err := f.fill(frameHeader); err != nil {
		return 0, nil, err
	}
	length := binary.BigEndian.Uint32(f.buf[f.r+1:])
	if length < 4 || length > maxFrame {
		return 0, nil, fmt.Errorf("%w: type %q, length %d", errGarbled, f.buf[f.r], length)
	}
	size := 1 + int(length)
	f.cut = false
	if size > chunkSize && f.unwanted != nil {
		head, err := f.judge()
		if err != nil {
			return 0, nil, err
		}
		if f.cut {
			kind, f.drop = f.buf[f.r], size
			return kind, head, f.throwAway()
		}
	}
	if err := f.fill(size); err != nil {
		return 0, nil, err
	}
	frame := f.buf[f.r : f.r+size : f.r+size]
	f.r += size
	return frame[0], frame[frameHeader:], nil
}

// judge returns a copy of the head of an unwanted frame, and nil for any other.
func (f *frameReader) judge() (head []byte, err error) {
	if err := f.fill(frameHeader + headSize); err != nil {
		return nil, err
	}
	head = f.buf[f.r+frameHeader : f.r+frameHeader+headSize]
	f.cut = f.unwanted(f.buf[f.r], head)
	if !f.cut {
		return nil, nil
	}
	return bytes.Clone(head), nil
}

// throwAway reads the rest of an unwanted frame.
func (f *frameReader) throwAway() error {
	for f.drop > 0 {
		if err := f.fill(1); err != nil {
			return err
		}
		n := min(f.drop, f.w-f.r)
		f.r, f.drop = f.r+n, f.drop-n
	}
	return nil
}

// whole reports whether a whole frame is buffered.
func (f *frameReader) whole() bool {
	n := f.w - f.r
	return n >= frameHeader && uint32(n)-1 >= binary.BigEndian.Uint32(f.buf[f.r+1:])
}

// fill makes buf[r:w] at least n bytes long.
func (f *frameReader) fill(n int) error {
	for f.w-f.r < n {
		if f.w == len(f.buf) {
			f.grow(n)
		}
		m, err := f.src.Read(f.buf[f.w:])
		f.w += m
		if m == 0 && err != nil {
			if err == io.EOF && f.w > f.r {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}

// usual is the size of the chunk after buf, which has taken so long to fill.
func (f *frameReader) usual(took time.Duration) int {
	switch {
	case took > idleTime:
		return idleSize
	case took < busyTime:
		return chunkSize
	}
	return len(f.buf)
}

// grow begins a new chunk with the rest of the full one. The chunk's size
// follows the bytes arrived, not the length field, so a garbled length cannot
// exhaust memory.
func (f *frameReader) grow(n int) {
	rest := f.buf[f.r:f.w]
	now := time.Now()
	size := max(f.usual(now.Sub(f.begun)), min(n, 2*len(rest)))
	f.begun = now
	chunk := f.pool.get(size)
	f.base += int64(len(f.buf))
	f.w = copy(chunk.buf, rest)
	f.r = 0
	f.chunk.Release(1)
	f.chunk, f.buf = chunk, chunk.buf
}
