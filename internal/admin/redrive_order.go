package admin

import (
	"hash/fnv"
	"slices"

	"github.com/cdc-outbox/cdc-outbox/internal/registry"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

// fate is what becomes of a letter.
type fate uint8

const (
	fatePublish fate = iota
	fateDone         // by an earlier redrive
	fateRefused
	fateUncertain // an earlier redrive may have published it
	fateWait      // behind a letter of its key that is left out
)

// chosen is a letter, without its bytes: a topic may have millions.
type chosen struct {
	at        int64 // ms
	offset    int64
	key       uint64 // of topic and key; 0: no order
	identity  uint64 // of topic, key and id
	partition int32
	topic     int32 // index
	fate      fate
}

func (c *chosen) place() LetterPlace { return LetterPlace{c.partition, c.offset} }

// orderOf stands for the topic and the key, within which letters have an order.
func orderOf(letter *sink.Letter) uint64 {
	if letter.Key == nil || letter.KeyCut() || letter.Topic == "" {
		return 0
	}
	return max(1, identityOf(letter.Topic, letter.Key))
}

// identity tells a letter from another that had its place before. The key of a published
// record may have a form of its own, by encoding.key.
func (r *redrive) identity(topic string, key, id []byte) uint64 {
	if r.cfg.Encoding.Key.Format != registry.FormatNone {
		key = nil
	}
	return identityOf(topic, key, id)
}

// identityOf hashes a topic and texts, of which nil is another than an empty one.
func identityOf(topic string, texts ...[]byte) uint64 {
	h := fnv.New64a()
	put := func(tag byte, text []byte) {
		n := len(text)
		h.Write([]byte{tag, byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)})
		h.Write(text)
	}
	put('t', []byte(topic))
	for _, text := range texts {
		if text == nil {
			put('n', nil)
		} else {
			put('b', text)
		}
	}
	return h.Sum64()
}

// inOrder merges partitions by the time of the letters. Letters of a key are in one
// partition, unless the topic was given more: then the time orders them.
func inOrder(partitions map[int32][]chosen) []chosen {
	var heads [][]chosen
	n := 0
	for _, letters := range partitions {
		heads, n = append(heads, letters), n+len(letters)
	}
	order := make([]chosen, 0, n)
	for len(heads) > 0 {
		first := 0
		for i := range heads {
			a, b := &heads[i][0], &heads[first][0]
			if a.at < b.at || a.at == b.at && a.partition < b.partition {
				first = i
			}
		}
		order = append(order, heads[first][0])
		if heads[first] = heads[first][1:]; len(heads[first]) == 0 {
			heads = slices.Delete(heads, first, first+1)
		}
	}
	return order
}

// leaveOut lets letters wait behind one of their key that is left out.
func leaveOut(order []chosen) {
	stopped := make(map[uint64]bool)
	for i := range order {
		switch c := &order[i]; {
		case c.key == 0 || c.fate == fateDone:
		case c.fate != fatePublish:
			stopped[c.key] = true
		case stopped[c.key]:
			c.fate = fateWait
		}
	}
}
