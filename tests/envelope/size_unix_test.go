//go:build unix

package envelope_test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/base/envelope"
)

// The memory is address space only: the size decides before anything is read.
func TestTooLarge(t *testing.T) {
	huge, err := syscall.Mmap(-1, 0, envelope.MaxSize, syscall.PROT_NONE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Munmap(huge) }()
	m := &envelope.Message{Payload: huge}
	if got, err := m.Append([]byte("before")); !errors.Is(err, envelope.ErrTooLarge) || string(got) != "before" {
		t.Errorf("Append = %q, %v", got, err)
	}
	if got, err := envelope.Encode(m); !errors.Is(err, envelope.ErrTooLarge) || got != nil {
		t.Errorf("Encode = %q, %v", got, err)
	}
}
