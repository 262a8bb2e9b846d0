//go:build !linux

package unwatched

import "time"

// Timer lets a goroutine wait for a few milliseconds. A single goroutine uses
// it.
type Timer struct{}

// NewTimer returns a Timer, which must be closed.
func NewTimer() (*Timer, error) { return &Timer{}, nil }

// Wait returns after d.
func (t *Timer) Wait(d time.Duration) error {
	time.Sleep(d)
	return nil
}

// Close implements io.Closer.
func (t *Timer) Close() error { return nil }
