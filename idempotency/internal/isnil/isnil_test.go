package isnil_test

import (
	"bytes"
	"io"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/idempotency/internal/isnil"
)

func TestValue(t *testing.T) {
	var none *bytes.Buffer
	var reader io.Reader = none
	if !isnil.Value(nil) || !isnil.Value(none) || !isnil.Value(reader) || isnil.Value(0) || isnil.Value(&bytes.Buffer{}) {
		t.Error("nil is not told from what is there")
	}
}
