// Package claimcheck reads values that the connector keeps outside of Kafka (claim_check): such a
// record has an empty value, and headers with a reference.
//
// Invariants:
//
//  1. A value is returned only if size and SHA-256 are the reference's.
//  2. A store reads from the configured bucket or table only, whatever a record names.
//
// The packages s3 and table are the stores, each with its client alone. Non-goals: writing and
// deleting values, retries (the handler's).
package claimcheck

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"strconv"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// The headers of a reference.
const (
	HeaderPlace  = "cdc-claim"        // s3://BUCKET/KEY or table:SCHEMA.TABLE/KEY
	HeaderSize   = "cdc-claim-size"   // bytes, in decimal
	HeaderSHA256 = "cdc-claim-sha256" // of the value, in hexadecimal
	HeaderType   = "cdc-claim-type"   // a media type
)

var (
	// ErrGone reports a value missing in the store: the retention has passed, or the record
	// was copied from another environment. No later attempt finds it.
	ErrGone = errors.New("the value is not in the claim store (any more): its retention must be longer than the longest delay of a consumer")
	// ErrMismatch reports a value of another size or SHA-256 than the reference has.
	ErrMismatch = errors.New("the value in the claim store is another one than the record refers to")
	// ErrElsewhere reports a reference to another bucket or table than the store's.
	ErrElsewhere = errors.New("the record refers to another claim store")
)

// Header is a header of a record, as the clients of Kafka have it: franz-go's
// kgo.RecordHeader, and kafka.Header of segmentio and of confluent.
type Header interface {
	~struct {
		Key   string
		Value []byte
	}
}

// Store reads values. It may be used concurrently.
type Store interface {
	// Open begins to read the value at the place. Errors are ErrGone, ErrElsewhere, or may pass.
	Open(ctx context.Context, place string) (io.ReadCloser, error)
}

// Claim is the place of a value.
type Claim struct {
	Place  string
	Size   int64
	SHA256 [sha256.Size]byte
	Type   string
}

// Of returns the reference of a record, given by value and headers; ok is false for a record
// with a value of its own, and for a tombstone, without such headers. Some clients give an
// empty value as nil, as segmentio's does.
func Of[H Header](value []byte, headers []H) (ref Claim, ok bool) {
	if len(value) > 0 {
		return ref, false
	}
	for _, header := range headers {
		h := struct {
			Key   string
			Value []byte
		}(header)
		switch h.Key {
		case HeaderPlace:
			ref.Place = string(h.Value)
		case HeaderSize:
			ref.Size, _ = strconv.ParseInt(string(h.Value), 10, 64) // 0 is no size of a value kept elsewhere
		case HeaderSHA256:
			sum, err := hex.DecodeString(string(h.Value))
			ok = err == nil && len(sum) == sha256.Size
			copy(ref.SHA256[:], sum)
		case HeaderType:
			ref.Type = string(h.Value)
		}
	}
	return ref, ok && ref.Place != "" && ref.Size > 0
}

// Fingerprint is idempotency.FingerprintBytes of the value, without a read.
func (r Claim) Fingerprint() storage.Fingerprint {
	return storage.Fingerprint("b1:" + base64.RawURLEncoding.EncodeToString(r.SHA256[:]))
}

// Fetch returns the whole value of a record: its own or, with a reference, the one in the store.
// Errors are ErrGone, ErrMismatch, ErrElsewhere, or may pass.
func Fetch[H Header](ctx context.Context, store Store, value []byte, headers []H) ([]byte, error) {
	ref, ok := Of(value, headers)
	if !ok {
		return value, nil
	}
	body, err := open(ctx, store, ref)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	var whole bytes.Buffer
	if _, err := whole.ReadFrom(body); err != nil {
		return nil, err
	}
	return whole.Bytes(), nil
}

// Open is Fetch as a stream, for values too large for memory: only the end of the stream, io.EOF,
// tells that the value is right.
func Open[H Header](ctx context.Context, store Store, value []byte, headers []H) (io.ReadCloser, error) {
	ref, ok := Of(value, headers)
	if !ok {
		return io.NopCloser(bytes.NewReader(value)), nil
	}
	return open(ctx, store, ref)
}

func open(ctx context.Context, store Store, ref Claim) (io.ReadCloser, error) {
	body, err := store.Open(ctx, ref.Place)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", ref.Place, err)
	}
	return &verified{ReadCloser: body, ref: ref, left: ref.Size, hash: sha256.New()}, nil
}

// verified compares what is read with the reference.
type verified struct {
	io.ReadCloser
	ref  Claim
	left int64
	hash hash.Hash
}

// Read implements io.Reader.
func (v *verified) Read(p []byte) (n int, err error) {
	n, err = v.ReadCloser.Read(p)
	v.left -= int64(n)
	_, _ = v.hash.Write(p[:n]) // never fails
	switch {
	case v.left < 0:
		return 0, fmt.Errorf("%s has more than %d bytes: %w", v.ref.Place, v.ref.Size, ErrMismatch)
	case errors.Is(err, io.EOF) && v.left > 0:
		return n, fmt.Errorf("%s has %d of %d bytes: %w", v.ref.Place, v.ref.Size-v.left, v.ref.Size, ErrMismatch)
	case errors.Is(err, io.EOF) && !bytes.Equal(v.hash.Sum(nil), v.ref.SHA256[:]):
		return n, fmt.Errorf("%s has another SHA-256: %w", v.ref.Place, ErrMismatch)
	case err != nil && !errors.Is(err, io.EOF):
		return n, fmt.Errorf("read %s: %w", v.ref.Place, err)
	}
	return n, err
}
