package wal

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// Under recycling, a body must stay what it is for as long as its chunk is
// retained, in whatever order chunks are released, and memory must be used
// again.
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

// Without recycling nothing is used again, whatever is released.
func TestChunksWithoutAPoolAreLeftAlone(t *testing.T) {
	var p *chunkPool
	c := p.get(10)
	c.Retain()
	c.Release(2)
	if d := p.get(10); d == c || len(c.buf) != chunkSize {
		t.Error("a chunk without a pool was used again")
	}
	var none *Chunk
	none.Retain()
	none.Release(1)
}
