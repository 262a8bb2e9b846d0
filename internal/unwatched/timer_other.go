//go:build !linux

package unwatched

import "time"

// Timer lets a goroutine wait for a few milliseconds. For a single goroutine.
type Timer struct{}

// NewTimer returns a Timer, to be closed.
func NewTimer() (*Timer, error) { return &Timer{}, nil }

// Wait returns after d.
func (t *Timer) Wait(d time.Duration) error {
	time.Sleep(d)
	return nil
}

// Close implements io.Closer.
func (t *Timer) Close() error { return nil }
