package claimcheck

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

var _ sink.Values = (*Keeper)(nil)

// Metrics is told of values kept. It must not block.
type Metrics interface {
	ValueKept(bytes int, took time.Duration)
}

// storage is the place of values. The methods are for concurrent use.
type storage interface {
	// place is the whole name of a value, for a reference.
	place(name string) string
	// put returns nil once the value is durable.
	put(ctx context.Context, name, media string, value []byte) error
	// get reads a value of the size at the place; errGone: there is none; errElsewhere: the
	// place is of another store.
	get(ctx context.Context, place string, size int64) ([]byte, error)
	// renew begins the age of the value at the place anew. Errors are as get's.
	renew(ctx context.Context, place, media string, size int64) error
	// remove deletes a value; a missing value is no error.
	remove(ctx context.Context, name string) error
	// reach returns nil if values would be taken, as far as a cheap question tells.
	reach(ctx context.Context) error
	// sweep deletes some values older than the age, and tells whether there are more.
	sweep(ctx context.Context, age time.Duration) (deleted int, more bool, err error)
	close()
}

// errGone reports a value missing in the store, errElsewhere a place that is not the store's.
var (
	errGone      = errors.New("the value is not in the claim store")
	errElsewhere = failure.Configf("set claim_check to the store of that value, and repeat", "the value is in another store than that of claim_check")
)

// slowest is the least expected throughput of a store, in bytes per second.
const slowest = 1 << 20

// Keeper is the sink.Values of the section claim_check, safe for concurrent use.
type Keeper struct {
	opts    Options
	media   string // the default
	storage storage
	metrics Metrics // nil: nobody counts
}

// New returns a Keeper, and asks nobody. The options have passed Validate. source is the
// database of the events, and format the payload's.
func New(o Options, source, format string, metrics Metrics) (*Keeper, error) {
	k := &Keeper{opts: o, media: mediaOf(o, format), metrics: metrics}
	if o.Store == StoreTable {
		url := o.Table.URL.Reveal()
		if url == "" {
			url = source
		}
		k.storage = newTable(url, o)
		return k, nil
	}
	var err error
	k.storage, err = newBucket(o.S3, o.Written)
	return k, err
}

// mediaOf is the media type of values without their own.
func mediaOf(o Options, format string) string {
	switch {
	case o.Type != "":
		return o.Type
	case format == transform.FormatJSON || format == transform.FormatJSONExpanded:
		return "application/json"
	}
	return "application/octet-stream"
}

// Close ends connections. A nil Keeper has none.
func (k *Keeper) Close() {
	if k != nil {
		k.storage.close()
	}
}

// Takes implements sink.Values.
func (k *Keeper) Takes(bytes int) bool { return k.opts.Takes(bytes) }

// Parallel implements sink.Values.
func (k *Keeper) Parallel() int { return k.opts.Parallel }

// Put implements sink.Values.
func (k *Keeper) Put(ctx context.Context, ev *transform.Event) error {
	value := ev.Record.Value
	sum := sha256.Sum256(value)
	media := k.media
	switch own, has := transform.Header(ev.Record.Headers, "content-type"); {
	case has && len(own) > 0:
		media = string(own)
	case ev.Encoded():
		media = "application/octet-stream"
	}
	name := nameOf(ev.ID, sum)
	began := time.Now()
	err := k.within(ctx, int64(len(value)), func(ctx context.Context) error { return k.storage.put(ctx, name, media, value) })
	if err != nil {
		return fmt.Errorf("keep a value of %d bytes: %w", len(value), err)
	}
	if k.metrics != nil {
		k.metrics.ValueKept(len(value), time.Since(began))
	}
	ev.Refer(transform.Claim{Place: k.storage.place(name), Size: int64(len(value)), SHA256: sum, Type: media})
	return nil
}

// Get implements sink.Values.
func (k *Keeper) Get(ctx context.Context, ev *transform.Event) error {
	var value []byte
	ref, err := k.referred(ctx, ev, "read", func(ctx context.Context, ref transform.Claim) (err error) {
		value, err = k.storage.get(ctx, ref.Place, ref.Size)
		return err
	})
	switch {
	case err != nil:
		return err
	case int64(len(value)) != ref.Size || sha256.Sum256(value) != ref.SHA256:
		return &transform.BadEvent{Reason: transform.ReasonClaimGone, Err: fmt.Errorf("%s: the value is another one than the reference says", ref.Place)}
	}
	ev.Restore(value)
	return nil
}

// Renew implements sink.Values.
func (k *Keeper) Renew(ctx context.Context, ev *transform.Event) error {
	_, err := k.referred(ctx, ev, "renew", func(ctx context.Context, ref transform.Claim) error {
		return k.storage.renew(ctx, ref.Place, ref.Type, ref.Size)
	})
	if err == nil {
		ev.Renew()
	}
	return err
}

// referred asks about the value that the event's record refers to.
func (k *Keeper) referred(ctx context.Context, ev *transform.Event, what string, ask func(context.Context, transform.Claim) error) (transform.Claim, error) {
	ref, ok := transform.ReferenceOf(&ev.Record)
	if !ok {
		return ref, errors.New("the record has no reference")
	}
	err := k.within(ctx, ref.Size, func(ctx context.Context) error { return ask(ctx, ref) })
	switch {
	case errors.Is(err, errGone), errors.Is(err, errElsewhere):
		err = &transform.BadEvent{Reason: transform.ReasonClaimGone, Err: fmt.Errorf("%s: %w", ref.Place, err)}
	case err != nil:
		err = fmt.Errorf("%s a value of %d bytes: %w", what, ref.Size, err)
	}
	return ref, err
}

// Reach returns nil if the store would take values, as far as a question without effect tells.
func (k *Keeper) Reach(ctx context.Context) error {
	return k.within(ctx, 0, k.storage.reach)
}

// probeName is the value of Try.
const probeName = "probe-of-cdc-outbox"

// Try writes, reads and deletes a value. removable tells whether it could be
// deleted, a right that run does without.
func (k *Keeper) Try(ctx context.Context) (removable error, err error) {
	value := []byte("a probe of cdc-outbox check")
	err = k.within(ctx, 0, func(ctx context.Context) error { return k.storage.put(ctx, probeName, "text/plain", value) })
	if err != nil {
		return nil, fmt.Errorf("write a value: %w", err)
	}
	err = k.within(ctx, 0, func(ctx context.Context) error {
		read, err := k.storage.get(ctx, k.storage.place(probeName), int64(len(value)))
		if err == nil && !bytes.Equal(read, value) {
			err = errors.New("the store gives another value than the one written")
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read a value: %w", err)
	}
	err = k.within(ctx, 0, func(ctx context.Context) error { return k.storage.remove(ctx, probeName) })
	if err != nil {
		return fmt.Errorf("delete a value: %w", err), nil
	}
	return nil, nil
}

// Sweep deletes some values beyond the retention, and tells whether there are more.
func (k *Keeper) Sweep(ctx context.Context) (deleted int, more bool, err error) {
	if k.opts.Retention == 0 {
		return 0, false, nil
	}
	err = k.within(ctx, 0, func(ctx context.Context) (err error) {
		deleted, more, err = k.storage.sweep(ctx, k.opts.Retention)
		return err
	})
	return deleted, more, err
}

// within gives a question its time.
func (k *Keeper) within(ctx context.Context, bytes int64, ask func(context.Context) error) error {
	limit := k.opts.Timeout + time.Duration(bytes/slowest)*time.Second
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := ask(limited)
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil && limited.Err() != nil:
		return &failure.Error{Remedy: "look after the claim store, or raise claim_check.timeout", Err: fmt.Errorf("the claim store has not answered within %s", limit)}
	}
	return err
}

// mostID is the length of the longest id in a name. Longer ids, and ids with other characters
// than letters, digits, dots, hyphens and underscores, are hashed.
const mostID = 64

// nameOf is the name of an event's value.
func nameOf(id []byte, sum [sha256.Size]byte) string {
	return idName(id) + "/" + hex.EncodeToString(sum[:])
}

func idName(id []byte) string {
	plain := len(id) > 0 && len(id) <= mostID && id[0] != '.'
	for _, c := range id {
		plain = plain && ('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.')
	}
	if plain {
		return string(id)
	}
	sum := sha256.Sum256(id)
	return "~" + hex.EncodeToString(sum[:16])
}
