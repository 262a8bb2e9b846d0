package setting

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/nearest"
)

// Fault is a fault of a setting.
type Fault struct {
	// Key is the whole dotted key.
	Key string
	// Item is the faulty item of a list, from 1; 0 for the whole value.
	Item int
	// Text says what is wrong, without key and value.
	Text string
	// Remedy says what to do about it.
	Remedy string
}

// Report takes a fault, and is called for each.
type Report func(Fault)

// Problem reports a fault of the whole value.
func (r Report) Problem(key, text, remedy string) { r(Fault{Key: key, Text: text, Remedy: remedy}) }

// OneOf reports a value that is not among those allowed.
func (r Report) OneOf(key, got string, allowed ...string) {
	if slices.Contains(allowed, got) {
		return
	}
	text, remedy := "must be one of "+strings.Join(allowed, ", "), "write one of them"
	if len(allowed) == 1 {
		text, remedy = "must be "+allowed[0], "write that, or remove the key"
	}
	if meant := nearest.To(got, allowed); meant != "" {
		remedy = "did you mean " + meant + "?"
	}
	r.Problem(key, text, remedy)
}

// Between reports a duration beyond the bounds, which are allowed themselves.
func (r Report) Between(key string, got, lowest, highest time.Duration) {
	if got < lowest || got > highest {
		r.Problem(key, fmt.Sprintf("must be between %v and %v", lowest, highest), "write a duration within these bounds")
	}
}

// Number reports a number beyond the bounds, which are allowed themselves.
func (r Report) Number(key string, got, lowest, highest int) {
	if got < lowest || got > highest {
		r.Problem(key, fmt.Sprintf("must be between %d and %d", lowest, highest), "write a number within these bounds")
	}
}

// File reports an unreadable file; an empty path means none.
func (r Report) File(key, path string) {
	if path == "" {
		return
	}
	if _, err := os.ReadFile(path); err != nil {
		r.Problem(key, "cannot be read: "+Reason(err), "correct the path, or make the file readable for the connector's user")
	}
}

// Reason is the cause of a file system error without the path, for a message
// with the path already.
func Reason(err error) string {
	if pathError, ok := errors.AsType[*os.PathError](err); ok {
		return pathError.Err.Error()
	}
	return err.Error()
}
