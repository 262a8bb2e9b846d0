package usercode_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/idempotency/internal/usercode"
)

var errPlain = errors.New("plain")

func explode() error { panic(errPlain) }

func TestCall(t *testing.T) {
	if err := usercode.Call(func() error { return nil }); err != nil {
		t.Error(err)
	}
	if err := usercode.Call(func() error { return errPlain }); !errors.Is(err, errPlain) {
		t.Error(err)
	}
	err := usercode.Call(explode)
	p, ok := errors.AsType[*usercode.Panic](err)
	if !ok || !errors.Is(err, errPlain) || err.Error() != "panic: plain" || !strings.Contains(string(p.Stack()), "explode") {
		t.Errorf("%v", err)
	}
	if err := usercode.Call(func() error { panic("text") }); err == nil || err.Error() != "panic: text" {
		t.Error(err)
	}
}
