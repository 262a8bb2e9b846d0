package redis

import (
	"fmt"
	"strconv"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// fields is a script's reply, read from the front: strings, and nil for what the
// record does not have. The first that is not as expected is kept as the error.
type fields struct {
	rest []any
	err  error
}

func readFields(reply any) *fields {
	list, ok := reply.([]any)
	if !ok {
		return &fields{err: unexpected(reply)}
	}
	return &fields{rest: list}
}

func unexpected(reply any) error { return fmt.Errorf("unexpected reply of type %T", reply) }

// text takes a string; one that is not there is empty.
func (f *fields) text() string {
	if f.err != nil {
		return ""
	}
	if len(f.rest) == 0 {
		f.err = fmt.Errorf("the reply is too short")
		return ""
	}
	value := f.rest[0]
	f.rest = f.rest[1:]
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return v
	default:
		f.err = unexpected(value)
		return ""
	}
}

// number takes an integer; one that is not there is 0.
func (f *fields) number() int64 {
	text := f.text()
	if text == "" || f.err != nil {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		f.err = err
	}
	return n
}

// state takes a state's name.
func (f *fields) state() (state storage.State) {
	if name := f.text(); f.err == nil {
		f.err = state.UnmarshalText([]byte(name))
	}
	return state
}

// bytes takes a string; nil if it is not there.
func (f *fields) bytes() []byte {
	if text := f.text(); text != "" {
		return []byte(text)
	}
	return nil
}

// time takes a point of the server's time; one that is not there is zero.
func (f *fields) time() time.Time {
	if n := f.number(); n != 0 {
		return time.UnixMicro(n)
	}
	return time.Time{}
}

func (f *fields) duration() time.Duration { return time.Duration(f.number()) * time.Microsecond }

// readClaim reads the reply of claim.lua.
func readClaim(reply any, key storage.Key, owner string) (storage.Claim, error) {
	f := readFields(reply)
	claim := storage.Claim{Layer: storage.LayerStore}
	switch outcome := f.text(); outcome {
	case "mismatch":
		return storage.Claim{}, storage.ErrMismatch
	case "first":
		claim.Outcome, claim.Attempts = storage.Claimed, 1
		claim.Lease = storage.Lease{Key: key, Owner: owner, Fence: f.number()}
	case "claimed":
		claim.Outcome = storage.Claimed
		claim.Lease = storage.Lease{Key: key, Owner: owner, Fence: f.number()}
		claim.Attempts, claim.Reason = int(f.number()), f.text()
		claim.Vanished, claim.Excused = int(f.number()), int(f.number())
	case "duplicate":
		claim.Outcome = storage.Duplicate
		claim.Attempts, claim.Result = int(f.number()), f.bytes()
	case "given_up":
		claim.Outcome = storage.GivenUp
		claim.Attempts, claim.Reason = int(f.number()), f.text()
	case "not_due", "in_progress":
		claim.Outcome = storage.NotDue
		if outcome == "in_progress" {
			claim.Outcome = storage.InProgress
		}
		claim.Attempts, claim.Reason, claim.Wait = int(f.number()), f.text(), f.duration()
	default:
		if f.err == nil {
			f.err = fmt.Errorf("unexpected outcome %q", outcome)
		}
	}
	return claim, f.err
}

// readRecord reads a record in the order of reply.lua.
func readRecord(reply any, key storage.Key) (storage.Record, error) {
	f := readFields(reply)
	record := storage.Record{
		Key:         key,
		State:       f.state(),
		Fingerprint: storage.Fingerprint(f.text()),
		Owner:       f.text(),
		Fence:       f.number(),
		Attempts:    int(f.number()),
		LeaseUntil:  f.time(),
		RetryAt:     f.time(),
		Result:      f.bytes(),
		Reason:      f.text(),
		UpdatedAt:   f.time(),
		ExpiresAt:   f.time(),
		Vanished:    int(f.number()),
		Excused:     int(f.number()),
	}
	return record, f.err
}
