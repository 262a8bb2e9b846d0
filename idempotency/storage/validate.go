package storage

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds of a record's parts, beside MaxIDBytes and MaxReasonBytes.
const (
	// MaxTokenBytes bounds an owner and a fingerprint.
	MaxTokenBytes = 128
	// MinLease is the shortest lease; coarser clocks than milliseconds are not
	// expected of a server.
	MinLease = time.Millisecond
)

// Validate returns an error wrapping ErrBadRequest unless a Store must answer
// the request. Stores call Validate first.
func (r ClaimRequest) Validate() error {
	if err := checkOwner(r.Owner); err != nil {
		return err
	}
	if len(r.Fingerprint) > MaxTokenBytes || !isText(string(r.Fingerprint)) {
		return fmt.Errorf("%w: the fingerprint is not at most %d bytes of UTF-8 without NUL", ErrBadRequest, MaxTokenBytes)
	}
	if err := CheckLease(r.Lease); err != nil {
		return err
	}
	if r.Retention < r.Lease {
		return fmt.Errorf("%w: the retention, %s, is shorter than the lease, %s", ErrBadRequest, r.Retention, r.Lease)
	}
	return nil
}

// Validate returns an error wrapping ErrBadKey or ErrBadRequest unless a Store
// may have granted the lease.
func (l Lease) Validate() error {
	if err := l.Key.Validate(); err != nil {
		return err
	}
	return checkOwner(l.Owner)
}

// Validate returns an error wrapping ErrBadRequest unless the failure can be
// stored.
func (f Failure) Validate() error {
	switch {
	case f.RetryAfter < 0:
		return fmt.Errorf("%w: RetryAfter, %s, is negative", ErrBadRequest, f.RetryAfter)
	case f.Terminal && (f.Excused || f.Unrun), f.Excused && f.Unrun:
		return fmt.Errorf("%w: a failure is one of terminal, excused and unrun", ErrBadRequest)
	}
	return CheckRetention(f.Retention)
}

// Validate returns an error wrapping ErrBadKey or ErrBadRequest unless the
// filter can be applied.
func (f Filter) Validate() error {
	key := Key{Scope: f.Scope, ID: f.ID}
	if f.ID == "" {
		key.ID = "any"
	}
	if err := key.Validate(); err != nil {
		return err
	}
	if f.UnchangedFor < 0 {
		return fmt.Errorf("%w: UnchangedFor, %s, is negative", ErrBadRequest, f.UnchangedFor)
	}
	return nil
}

// CheckLease returns an error wrapping ErrBadRequest unless d can be a lease.
func CheckLease(d time.Duration) error {
	if d < MinLease {
		return fmt.Errorf("%w: the lease, %s, is shorter than %s", ErrBadRequest, d, MinLease)
	}
	return nil
}

// CheckRetention returns an error wrapping ErrBadRequest unless d can be the
// retention of a settled record.
func CheckRetention(d time.Duration) error {
	if d < MinLease {
		return fmt.Errorf("%w: the retention, %s, is shorter than %s", ErrBadRequest, d, MinLease)
	}
	return nil
}

// StoredReason returns Reason in stored form: UTF-8 without NUL, cut to
// MaxReasonBytes between two characters.
func (f Failure) StoredReason() string {
	s := strings.ToValidUTF8(f.Reason, string(utf8.RuneError))
	s = strings.ReplaceAll(s, "\x00", string(utf8.RuneError))
	if len(s) <= MaxReasonBytes {
		return s
	}
	end := MaxReasonBytes
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}

// StatesOrDefault returns States, or the default for none.
func (f Filter) StatesOrDefault() []State {
	if len(f.States) == 0 {
		return []State{Completed, Failed}
	}
	return f.States
}

func checkOwner(owner string) error {
	if owner == "" || len(owner) > MaxTokenBytes || !isText(owner) {
		return fmt.Errorf("%w: the owner is not 1 to %d bytes of UTF-8 without NUL", ErrBadRequest, MaxTokenBytes)
	}
	return nil
}

// isText tells whether every store can keep s as text.
func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// CheckCompletion returns an error unless a store keeping results of up to most
// bytes can complete the lease with the result: wrapping ErrBadRequest for the
// retention, or ErrResultTooLarge.
func CheckCompletion(lease Lease, result []byte, most int, retention time.Duration) error {
	if err := CheckRetention(retention); err != nil {
		return err
	}
	if len(result) > most {
		return fmt.Errorf("complete %s: %w: %d bytes, more than %d", lease.Key, ErrResultTooLarge, len(result), most)
	}
	return nil
}
