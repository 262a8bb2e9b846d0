package proxy

import (
	"bytes"
	"io"
	"math/rand/v2"
	"time"
)

// Fault says what happens to the bytes of one direction. The zero value passes
// them on. Fields combine, except that Cut and Swallow leave nothing for the
// others to do.
type Fault struct {
	// Cut closes the connection, on both sides, instead of passing on the next
	// bytes: what they answer was done, but the answer is lost.
	Cut bool
	// Swallow reads and drops everything, the end of the stream included: to the
	// receiving side the connection is half open. It stays so when the fault is
	// healed, if bytes were dropped: TCP passes nothing on behind a gap.
	Swallow bool
	// Delay is how long bytes are held back before they are passed on. The
	// proxy reads no further meanwhile.
	Delay time.Duration
	// Slice, if positive, passes bytes on in pieces of random length, from 1
	// to Slice bytes.
	Slice int
	// Corrupt, if positive, inverts random bits of about one byte in Corrupt.
	Corrupt int
}

// bufferSize is how much a pump reads at once.
const bufferSize = 32 << 10

// pump passes one direction's bytes on, under the fault of the moment, until
// the link ends. pump ends the link itself when its source does.
func (p *Proxy) pump(l *link, d Direction) {
	defer l.close()
	src, dst := l.ends(d)
	// The same bytes meet the same luck in each run, so a failure can be had again.
	random := rand.New(rand.NewPCG(0, uint64(d)))
	buf := make([]byte, bufferSize)
	gap := false // bytes were dropped
	for {
		n, err := src.Read(buf)
		if d == Up && n > 0 && l.first.Load() == nil {
			first := bytes.Clone(buf[:n])
			l.first.Store(&first)
		}
		if !p.hold.Load().wait(l) {
			return
		}
		f := p.faults[d].Load()
		silent := gap || f.Swallow
		switch {
		case silent && err != nil:
			<-l.done // the other side must not learn of it
			return
		case err != nil, f.Cut:
			return
		case silent:
			gap = true
			continue
		}
		p.bytes[d].Add(int64(n)) // before the receiver can have them
		if !l.wait(f.Delay) {
			return
		}
		f.corrupt(buf[:n], random)
		if err := f.write(dst, buf[:n], random); err != nil {
			return
		}
	}
}

// hold is what Hold asked for.
type hold struct {
	match    func(first []byte) bool
	released chan struct{}
}

// wait waits for the release of a held link. It returns false if the link ends.
func (h *hold) wait(l *link) bool {
	first := l.first.Load()
	if h == nil || first == nil || !h.match(*first) {
		return true
	}
	select {
	case <-h.released:
		return true
	case <-l.done:
		return false
	}
}

// wait returns after a delay, or false at once when the link ends.
func (l *link) wait(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.done:
		return false
	}
}

// corrupt damages b in place.
func (f *Fault) corrupt(b []byte, random *rand.Rand) {
	if f.Corrupt <= 0 {
		return
	}
	for i := range b {
		if random.IntN(f.Corrupt) == 0 {
			b[i] ^= byte(1 + random.IntN(255)) // never 0: the byte must change
		}
	}
}

// write writes b, in slices if so told.
func (f *Fault) write(dst io.Writer, b []byte, random *rand.Rand) error {
	for len(b) > 0 {
		n := len(b)
		if f.Slice > 0 {
			n = min(n, 1+random.IntN(f.Slice))
		}
		if _, err := dst.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
