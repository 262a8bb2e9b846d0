package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

// frame builds a protocol frame.
func frame(kind byte, body []byte) []byte {
	b := binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(body)+4))
	return append(b, body...)
}

// randomReader returns between 0 and n bytes a read.
type randomReader struct {
	src io.Reader
	*rand.Rand
}

func (r randomReader) Read(b []byte) (int, error) {
	return r.src.Read(b[:r.IntN(min(len(b), 1<<r.IntN(20))+1)])
}

// Bodies must not change, with any sizes of reads and any later reads.
func TestFrameBodiesAreNeverOverwritten(t *testing.T) {
	for name, chunked := range map[string]func(io.Reader, *rand.Rand) io.Reader{
		"whole":      func(r io.Reader, _ *rand.Rand) io.Reader { return r },
		"bytewise":   func(r io.Reader, _ *rand.Rand) io.Reader { return iotest.OneByteReader(r) },
		"halves":     func(r io.Reader, _ *rand.Rand) io.Reader { return iotest.HalfReader(r) },
		"data + EOF": func(r io.Reader, _ *rand.Rand) io.Reader { return iotest.DataErrReader(r) },
		"random":     func(r io.Reader, random *rand.Rand) io.Reader { return randomReader{r, random} },
	} {
		t.Run(name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(5, 6))
			var stream bytes.Buffer
			var want [][]byte
			for range 300 {
				body := bytes.Repeat([]byte{byte(random.Uint32())}, random.IntN(1<<random.IntN(16)))
				if random.IntN(50) == 0 { // longer than a chunk
					body = bytes.Repeat([]byte{byte(random.Uint32())}, chunkSize+random.IntN(3*chunkSize))
				}
				stream.Write(frame('d', body))
				want = append(want, body)
			}
			f := frameReader{src: chunked(&stream, random)}
			var got [][]byte
			for range want {
				kind, body, err := f.next()
				if err != nil || kind != 'd' {
					t.Fatalf("frame %d: %q, %v", len(got), kind, err)
				}
				got = append(got, body)
			}
			for i := range want {
				if !bytes.Equal(got[i], want[i]) {
					t.Fatalf("body %d of %d bytes changed while later ones were read", i, len(want[i]))
				}
				if cap(got[i]) != len(got[i]) {
					t.Fatalf("appending to body %d would overwrite the next frame", i)
				}
			}
			if _, _, err := f.next(); err != io.EOF {
				t.Errorf("after the last frame: %v; want EOF", err)
			}
		})
	}
}

func TestFrameRefusesGarbledLength(t *testing.T) {
	for _, length := range []uint32{0, 3, maxFrame + 1, 1 << 31, 1<<32 - 1} {
		f := frameReader{src: bytes.NewReader(binary.BigEndian.AppendUint32([]byte{'d'}, length))}
		if _, _, err := f.next(); !errors.Is(err, errGarbled) {
			t.Errorf("length %d: %v; want %q", length, err, errGarbled)
		}
	}
}

func TestFrameEndsEarly(t *testing.T) {
	whole := frame('d', []byte("hello"))
	for n := range whole {
		want := io.ErrUnexpectedEOF
		if n == 0 {
			want = io.EOF // between frames
		}
		f := frameReader{src: bytes.NewReader(whole[:n])}
		if _, _, err := f.next(); err != want {
			t.Errorf("after %d of %d bytes: %v; want %v", n, len(whole), err, want)
		}
	}
}

// A failed read, as at the end of the context, loses nothing: the next call goes on where
// the last stopped.
func TestFrameGoesOnAfterAnError(t *testing.T) {
	interrupted := errors.New("interrupted")
	whole := append(frame('d', []byte("hello")), frame('c', nil)...)
	for n := range len(frame('d', []byte("hello"))) {
		f := frameReader{src: io.MultiReader(bytes.NewReader(whole[:n]), iotest.ErrReader(interrupted))}
		if _, _, err := f.next(); err != interrupted {
			t.Fatalf("after %d bytes: %v", n, err)
		}
		f.src = bytes.NewReader(whole[n:])
		if kind, body, err := f.next(); kind != 'd' || string(body) != "hello" || err != nil {
			t.Errorf("after %d bytes and an error: %q %q, %v", n, kind, body, err)
		}
		if kind, body, err := f.next(); kind != 'c' || len(body) != 0 || err != nil {
			t.Errorf("after %d bytes and an error, next frame: %q %q, %v", n, kind, body, err)
		}
	}
}

// Everything allocated follows the bytes arrived, not a length field.
func TestFrameDoesNotAllocateWhatIsOnlyClaimed(t *testing.T) {
	data := append(binary.BigEndian.AppendUint32([]byte{'d'}, 1<<30), make([]byte, 3*chunkSize)...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f := frameReader{src: bytes.NewReader(data)}
	if _, _, err := f.next(); err != io.ErrUnexpectedEOF {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 16*chunkSize {
		t.Errorf("allocated %d bytes for %d that arrived", n, len(data))
	}
}

// While little arrives, a chunk is small: a hundred idle streams would have 12 MiB of chunks.
// In a flood chunks are large from the second on, until the flood is over.
func TestChunksAreSmallWhileLittleArrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var arrived bytes.Buffer
		var pause time.Duration // between two frames
		f := frameReader{pool: newChunkPool(), src: readerFunc(func(p []byte) (int, error) {
			if arrived.Len() == 0 {
				<-time.After(pause)
				arrived.Write(frame('k', make([]byte, 500)))
			}
			return arrived.Read(p)
		})}
		read := func(bytes int) {
			for to := f.place() + int64(bytes); f.place() < to; {
				if _, _, err := f.next(); err != nil {
					t.Fatal(err)
				}
			}
		}
		want := func(when string, size int) {
			t.Helper()
			if len(f.buf) != size {
				t.Errorf("%s: a chunk of %d bytes, want %d", when, len(f.buf), size)
			}
		}
		pause = 100 * time.Millisecond // 5 kB a second
		read(3 * idleSize)
		want("little arrives", idleSize)
		pause = time.Microsecond
		read(2 * chunkSize)
		want("a flood", chunkSize)
		pause = 100 * time.Millisecond
		read(2 * chunkSize)
		want("little arrives again", idleSize)
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
