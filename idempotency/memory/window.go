package memory

import (
	"sync"
	"time"

	"github.com/bits-and-blooms/bloom/v3"
	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
)

// The defaults of WindowOptions.
const (
	defaultExact          = 10_000
	defaultFiltered       = 1_000_000
	defaultFalsePositives = 0.001
)

// WindowOptions are all optional.
type WindowOptions struct {
	// Exact is how many keys are remembered for sure, with their results; the
	// least recently used is dropped. 10,000 if 0.
	Exact int
	// Filtered is the number of keys in a generation of the Bloom filter; a key is
	// known for one to two generations, each with 1.8 bytes per key at the default
	// rate. A million if 0.
	Filtered int
	// FalsePositives is the rate of unknown keys taken for known in a full
	// generation; each costs a read of the store. 0.001 if 0.
	FalsePositives float64
}

// Hit is a Window's knowledge of a key with a fingerprint.
type Hit uint8

// The hits.
const (
	Unknown  Hit = iota // not seen, or long ago
	Probable            // seen, or a mistake of the filter
	Exact               // seen
)

var hitNames = [...]string{"unknown", "probable", "exact"}

// String returns the hit's name in lower case.
func (h Hit) String() string {
	if int(h) < len(hitNames) {
		return hitNames[h]
	}
	return hitNames[0]
}

// Window remembers messages completed lately, in bounded memory: the latest
// exactly, more of them in two generations of a Bloom filter. It is safe for
// concurrent use. Make a Window with NewWindow.
type Window struct {
	options WindowOptions

	mu    sync.Mutex
	exact *simplelru.LRU[idempotency.Message, entry]
	// current takes the keys, previous is the former current.
	current, previous *bloom.BloomFilter
	added             int // to current
	name              []byte
}

// entry is the knowledge of a message; vouched if completed by the same process.
type entry struct {
	vouched  bool
	result   []byte
	attempts int
	until    time.Time // when the store may forget the message
}

// NewWindow returns an empty window.
func NewWindow(o WindowOptions) *Window {
	if o.Exact <= 0 {
		o.Exact = defaultExact
	}
	if o.Filtered <= 0 {
		o.Filtered = defaultFiltered
	}
	if o.FalsePositives <= 0 {
		o.FalsePositives = defaultFalsePositives
	}
	exact, err := simplelru.NewLRU[idempotency.Message, entry](o.Exact, nil)
	if err != nil {
		panic(err) //nolint:forbidigo // only a size below 1 is refused
	}
	filter := func() *bloom.BloomFilter { return bloom.NewWithEstimates(uint(o.Filtered), o.FalsePositives) }
	return &Window{options: o, exact: exact, current: filter(), previous: filter()}
}

// Add remembers a completed message.
func (w *Window) Add(m idempotency.Message) { w.add(m, entry{}) }

// Lookup returns the knowledge of a message. A key with another fingerprint is
// another message.
func (w *Window) Lookup(m idempotency.Message) Hit {
	hit, _ := w.lookup(m)
	return hit
}

// Forget drops a message found not to be completed. The filter may still answer
// Probable.
func (w *Window) Forget(m idempotency.Message) {
	m.Pending = nil
	w.mu.Lock()
	defer w.mu.Unlock()
	w.exact.Remove(m)
}

func (w *Window) add(m idempotency.Message, e entry) {
	m.Pending = nil
	w.mu.Lock()
	defer w.mu.Unlock()
	if known, ok := w.exact.Peek(m); ok && known.vouched && !e.vouched {
		e = known
	}
	w.exact.Add(m, e)
	if w.current.TestOrAdd(w.bytes(m)) {
		return
	}
	if w.added++; w.added >= w.options.Filtered {
		w.current, w.previous = w.previous.ClearAll(), w.current
		w.added = 0
	}
}

func (w *Window) lookup(m idempotency.Message) (Hit, entry) {
	m.Pending = nil
	w.mu.Lock()
	defer w.mu.Unlock()
	if e, ok := w.exact.Get(m); ok {
		return Exact, e
	}
	if name := w.bytes(m); w.current.Test(name) || w.previous.Test(name) {
		return Probable, entry{}
	}
	return Unknown, entry{}
}

// bytes returns the message's name for the filter, valid until the next call.
func (w *Window) bytes(m idempotency.Message) []byte {
	w.name = append(w.name[:0], m.Key.Scope...)
	w.name = append(append(w.name, 0), m.Key.ID...)
	w.name = append(append(w.name, 0), m.Fingerprint...)
	return w.name
}
