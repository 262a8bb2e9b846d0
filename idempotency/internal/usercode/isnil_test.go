package usercode_test

import (
	"bytes"
	"io"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/idempotency/internal/usercode"
)

func TestValue(t *testing.T) {
	var none *bytes.Buffer
	var reader io.Reader = none
	if !usercode.IsNil(nil) || !usercode.IsNil(none) || !usercode.IsNil(reader) || usercode.IsNil(0) || usercode.IsNil(&bytes.Buffer{}) {
		t.Error("nil is not told from what is there")
	}
}
