package audit

import (
	"bufio"
	"fmt"
	"io"
	"os"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// spill is a sequence of items of one size on disk: written first, read after.
// The file has no name where the system allows that, so a process that dies
// leaves nothing behind.
type spill struct {
	dir   string
	file  *os.File
	w     *bufio.Writer
	size  int // of an item
	items int64
}

func newSpill(dir string, size int) (*spill, error) {
	s := &spill{dir: dir, size: size}
	file, err := os.CreateTemp(dir, "cdc-outbox-*.ids")
	if err != nil {
		return nil, s.failed(err)
	}
	_ = os.Remove(file.Name()) // Windows refuses; close removes it there
	s.file, s.w = file, bufio.NewWriterSize(file, 4<<10)
	return s, nil
}

// failed names the remedy where the directory takes no file, or no more.
func (s *spill) failed(err error) error {
	dir := s.dir
	if dir == "" {
		dir = os.TempDir()
	}
	return failure.Configf("choose a directory with room by --tmp, of run by TMPDIR (a row takes 72 bytes and a record 32, with --content 168 and 92), and allow 900 open files (ulimit -n)", "keep ids in %s: %w", dir, err)
}

func (s *spill) write(item []byte) error {
	s.items++
	if _, err := s.w.Write(item); err != nil {
		return s.failed(err)
	}
	return nil
}

// cursor reads everything written so far.
func (s *spill) cursor() (*cursor, error) {
	if err := s.w.Flush(); err != nil {
		return nil, s.failed(err)
	}
	return &cursor{
		r:    bufio.NewReaderSize(io.NewSectionReader(s.file, 0, s.items*int64(s.size)), 32<<10),
		item: make([]byte, s.size),
	}, nil
}

func (s *spill) close() {
	_ = s.file.Close()
	_ = os.Remove(s.file.Name())
}

// cursor is at a place of a spill.
type cursor struct {
	r    io.Reader
	item []byte // the last one, reused
}

// next returns the next item, valid until the next call; nil: there is none.
func (c *cursor) next() ([]byte, error) {
	switch _, err := io.ReadFull(c.r, c.item); err {
	case nil:
		return c.item, nil
	case io.EOF:
		return nil, nil
	default:
		return nil, fmt.Errorf("read the ids that were kept on disk: %w", err)
	}
}

// spills are the shares of a set.
type spills []*spill

func newSpills(dir string, n, size int) (set spills, err error) {
	for range n {
		s, err := newSpill(dir, size)
		if err != nil {
			set.close()
			return nil, err
		}
		set = append(set, s)
	}
	return set, nil
}

// items is the number of items in all shares.
func (s spills) items() (n int64) {
	for _, share := range s {
		n += share.items
	}
	return n
}

func (s spills) close() {
	for _, share := range s {
		share.close()
	}
}
