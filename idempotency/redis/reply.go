package redis

import (
	"errors"
	"fmt"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// replyFor returns a script's reply for the key at the place.
func replyFor(place int, script *goredis.Cmd) (any, error) {
	replies, err := script.Slice()
	if err != nil {
		return nil, err
	}
	if place >= len(replies) {
		return nil, fmt.Errorf("the script replied for %d keys", len(replies))
	}
	if err, refused := replies[place].(error); refused {
		return nil, err
	}
	return replies[place], nil
}

// fields is a script's reply for a key, read from the front. The first
// unexpected value is kept as the error.
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

// take takes the next value.
func take[T string | int64](f *fields) (v T) {
	if f.err != nil {
		return v
	}
	if len(f.rest) == 0 {
		f.err = errors.New("the reply is too short")
		return v
	}
	v, ok := f.rest[0].(T)
	if !ok {
		f.err = unexpected(f.rest[0])
	}
	f.rest = f.rest[1:]
	return v
}

func (f *fields) text() string { return take[string](f) }

func (f *fields) number() int64 { return take[int64](f) }

// state takes a state's name.
func (f *fields) state() (state storage.State) {
	if name := f.text(); f.err == nil {
		f.err = state.UnmarshalText([]byte(name))
	}
	return state
}

// bytes takes a string; nil if empty.
func (f *fields) bytes() []byte {
	if text := f.text(); text != "" {
		return []byte(text)
	}
	return nil
}

// time takes a point of the server's time; 0 is the zero time.
func (f *fields) time() time.Time {
	if n := f.number(); n != 0 {
		return time.UnixMicro(n)
	}
	return time.Time{}
}

func (f *fields) duration() time.Duration { return time.Duration(f.number()) * time.Microsecond }

// readClaim reads the reply of claim.lua.
func readClaim(reply any, key storage.Key, owner string) (storage.Claim, error) {
	claim := storage.Claim{Layer: storage.LayerStore}
	if fence, first := reply.(int64); first {
		claim.Outcome, claim.Attempts = storage.Claimed, 1
		claim.Lease = storage.Lease{Key: key, Owner: owner, Fence: fence}
		return claim, nil
	}
	f := readFields(reply)
	switch outcome := f.text(); outcome {
	case "mismatch":
		return storage.Claim{}, storage.ErrMismatch
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
