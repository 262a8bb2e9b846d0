package audit

import (
	"container/heap"
	"slices"
)

// chunk is how many entries are sorted in memory: 20 MiB of them.
const chunk = 1 << 18

// sorter returns entries in the order of their publication: sorted chunks on
// disk, merged.
type sorter struct {
	dir    string
	chunk  int
	items  int64
	buffer []Entry
	runs   spills
}

func (s *sorter) add(e *Entry) error {
	s.items++
	s.buffer = append(s.buffer, *e)
	if len(s.buffer) < s.chunk {
		return nil
	}
	return s.flush()
}

// flush writes the buffer as a run.
func (s *sorter) flush() error {
	if len(s.buffer) == 0 {
		return nil
	}
	slices.SortFunc(s.buffer, func(a, b Entry) int { return a.compare(&b) })
	run, err := newSpill(s.dir, entryBytes)
	if err != nil {
		return err
	}
	s.runs = append(s.runs, run)
	var item [entryBytes]byte
	for i := range s.buffer {
		s.buffer[i].encode(item[:])
		if err := run.write(item[:]); err != nil {
			return err
		}
	}
	s.buffer = s.buffer[:0]
	return nil
}

// each calls fn with all entries in order, up to the first error. It may be
// called again.
func (s *sorter) each(fn func(*Entry) error) error {
	if err := s.flush(); err != nil {
		return err
	}
	s.buffer = nil
	var heads merge
	for _, run := range s.runs {
		c, err := run.cursor()
		if err != nil {
			return err
		}
		h := head{cursor: c}
		if more, err := h.advance(); err != nil {
			return err
		} else if more {
			heads = append(heads, h)
		}
	}
	heap.Init(&heads)
	for len(heads) > 0 {
		if err := fn(&heads[0].entry); err != nil {
			return err
		}
		more, err := heads[0].advance()
		switch {
		case err != nil:
			return err
		case more:
			heap.Fix(&heads, 0)
		default:
			heap.Pop(&heads)
		}
	}
	return nil
}

func (s *sorter) close() { s.runs.close() }

// head is the next entry of a run.
type head struct {
	cursor *cursor
	entry  Entry
}

func (h *head) advance() (more bool, err error) {
	item, err := h.cursor.next()
	if item == nil {
		return false, err
	}
	h.entry = decodeEntry(item)
	return true, nil
}

// merge is a heap of the runs by their next entries.
type merge []head

func (m merge) Len() int           { return len(m) }
func (m merge) Less(i, j int) bool { return m[i].entry.compare(&m[j].entry) < 0 }
func (m merge) Swap(i, j int)      { m[i], m[j] = m[j], m[i] }
func (m *merge) Push(x any)        { *m = append(*m, x.(head)) }

func (m *merge) Pop() any {
	last := len(*m) - 1
	x := (*m)[last]
	*m = (*m)[:last]
	return x
}
