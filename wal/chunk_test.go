package wal

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
)

// Under recycling, a body must not change for as long as the chunk is retained, in any
// order of releases, and memory must be used again.
func TestChunksAreUsedAgainOnlyWhenReleased(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	const frames = 20_000
	var stream bytes.Buffer
	var want [][]byte
	for n := range frames {
		body := bytes.Repeat([]byte{byte(n), byte(n >> 8)}, 1+random.IntN(1<<random.IntN(12)))
		if n%5000 == 4999 { // longer than a chunk
			body = bytes.Repeat([]byte{byte(n)}, 2*chunkSize)
		}
		stream.Write(frame('d', body))
		want = append(want, body)
	}

	type held struct {
		n     int
		body  []byte
		chunk *Chunk
	}
	var kept []held
	release := func(i int) {
		h := kept[i]
		if !bytes.Equal(h.body, want[h.n]) {
			t.Fatalf("body %d was overwritten while it was retained", h.n)
		}
		h.chunk.Release(1)
		kept[i] = kept[len(kept)-1]
		kept = kept[:len(kept)-1]
	}
	f := frameReader{src: randomReader{&stream, random}, pool: newChunkPool()}
	chunks := map[*Chunk]bool{}
	for n := range frames {
		_, body, err := f.next()
		if err != nil {
			t.Fatal(err)
		}
		chunks[f.chunk] = true
		if !bytes.Equal(body, want[n]) {
			t.Fatalf("body %d is wrong", n)
		}
		f.chunk.Retain()
		kept = append(kept, held{n, body, f.chunk})
		for len(kept) > 500 || len(kept) > 0 && random.IntN(3) == 0 {
			release(random.IntN(len(kept)))
		}
	}
	for len(kept) > 0 {
		release(0)
	}
	if read := len(want) * 500 / chunkSize; len(chunks) > read/4 {
		t.Errorf("%d chunks for about %d chunks' worth of frames: memory is not used again", len(chunks), read)
	}
}

// Without recycling nothing is used again, even if released.
func TestChunksWithoutAPoolAreLeftAlone(t *testing.T) {
	var p *chunkPool
	c := p.get(10)
	c.Retain()
	c.Release(2)
	if d := p.get(10); d == c || len(c.buf) != 10 {
		t.Error("a chunk without a pool was used again")
	}
	var none *Chunk
	none.Retain()
	none.Release(1)
}

// The results of Retain add up to the chunks held, for any retained part of the
// stream and any size of messages.
func TestRetainCountsTheChunksThatAreHeld(t *testing.T) {
	for name, c := range map[string]struct {
		size  func(*rand.Rand) int // of a message
		every int                  // one of so many is retained, on average
	}{
		"small messages":              {func(r *rand.Rand) int { return 50 + r.IntN(500) }, 1},
		"small ones among small ones": {func(r *rand.Rand) int { return 50 + r.IntN(500) }, 300},
		"small ones far apart":        {func(r *rand.Rand) int { return 50 + r.IntN(500) }, 5000},
		"half a chunk":                {func(r *rand.Rand) int { return chunkSize/2 + r.IntN(1000) }, 1},
		"large ones":                  {func(r *rand.Rand) int { return 1<<20 + r.IntN(1<<20) }, 1},
		"all sizes":                   {func(r *rand.Rand) int { return 1 << r.IntN(21) }, 3},
	} {
		t.Run(name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(3, 4))
			var stream bytes.Buffer
			for stream.Len() < 40<<20 {
				stream.Write(frame('d', make([]byte, c.size(random))))
			}
			f := frameReader{src: &stream, pool: newChunkPool()}
			var k kept
			type held struct {
				chunk *Chunk
				bytes int64
			}
			var queue []held // released in order, as by delivery
			var counted, compared int64
			for {
				_, body, err := f.next()
				if err != nil {
					break
				}
				if random.IntN(c.every) != 0 {
					continue
				}
				m := Message{Chunk: f.chunk, span: span{&k, f.base, f.place(), int64(len(body))}}
				n := m.Retain()
				queue = append(queue, held{f.chunk, n})
				for counted += n; counted > 8<<20; {
					counted -= queue[0].bytes
					queue[0].chunk.Release(1)
					queue = queue[1:]
				}
				var memory int64
				chunks := map[*Chunk]bool{}
				for _, h := range slices.Backward(queue) {
					if !chunks[h.chunk] {
						chunks[h.chunk] = true
						memory += int64(len(h.chunk.buf))
					}
				}
				const ends = 2 * chunkSize // the chunks at both ends of the queue count in part
				if counted < memory-ends || counted > memory+ends {
					t.Fatalf("%d messages hold %d bytes of chunks, counted as %d", len(queue), memory, counted)
				}
				compared++
				if compared > 3000 && c.every == 1 { // the comparison takes the time
					return
				}
			}
			if compared < 10 {
				t.Errorf("compared %d times", compared)
			}
		})
	}
}
