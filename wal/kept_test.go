package wal

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
)

// What Retain returns adds up to the chunks that are held, whatever part of the
// stream is retained and however large its messages are.
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
				if compared > 3000 && c.every == 1 { // the comparison takes its time
					return
				}
			}
			if compared < 10 {
				t.Errorf("compared %d times", compared)
			}
		})
	}
}
