package transform

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Names of the headers of a reference: the record's value is empty, and kept elsewhere.
const (
	HeaderClaim       = "cdc-claim"        // the place: s3://BUCKET/KEY or table:SCHEMA.TABLE/KEY
	HeaderClaimSize   = "cdc-claim-size"   // bytes, in decimal
	HeaderClaimSHA256 = "cdc-claim-sha256" // of the value, in hexadecimal
	HeaderClaimType   = "cdc-claim-type"   // a media type
)

// isReferenceHeader reports whether the name is of a reference.
func isReferenceHeader(name string) bool { return strings.HasPrefix(name, HeaderClaim) }

// Claim is the place of a value outside of Kafka.
type Claim struct {
	Place  string
	Size   int64
	SHA256 [sha256.Size]byte
	Type   string
}

// ReferenceOf reads the headers of a record; ok is false for a record with a value of its own.
func ReferenceOf(rec *kgo.Record) (ref Claim, ok bool) {
	if rec.Value == nil || len(rec.Value) > 0 {
		return ref, false
	}
	for _, h := range rec.Headers {
		switch h.Key {
		case HeaderClaim:
			ref.Place = string(h.Value)
		case HeaderClaimSize:
			ref.Size, _ = strconv.ParseInt(string(h.Value), 10, 64) // 0 fits no value kept elsewhere
		case HeaderClaimSHA256:
			sum, err := hex.DecodeString(string(h.Value))
			ok = err == nil && copy(ref.SHA256[:], sum) == sha256.Size && len(sum) == sha256.Size
		case HeaderClaimType:
			ref.Type = string(h.Value)
		}
	}
	return ref, ok && ref.Place != "" && ref.Size > 0
}

// WithoutReference returns the headers without a reference's.
func WithoutReference(headers []kgo.RecordHeader) []kgo.RecordHeader {
	if !slices.ContainsFunc(headers, func(h kgo.RecordHeader) bool { return isReferenceHeader(h.Key) }) {
		return headers
	}
	return slices.DeleteFunc(slices.Clone(headers), func(h kgo.RecordHeader) bool { return isReferenceHeader(h.Key) })
}

// Refer puts a reference in the place of the record's value, and remembers the value. Not to
// be called twice, nor for a record on the way to a broker.
func (e *Event) Refer(ref Claim) {
	if !e.encoded {
		e.key, e.value = e.Record.Key, e.Record.Value
	}
	e.referred = true
	e.Record.Value = []byte{}
	text := func(key, value string) kgo.RecordHeader { return kgo.RecordHeader{Key: key, Value: []byte(value)} }
	at := len(e.Record.Headers)
	if at > 0 && e.Record.Headers[at-1].Key == headerTotal { // stays the last
		at--
	}
	e.Record.Headers = slices.Insert(slices.Clip(e.Record.Headers), at,
		text(HeaderClaim, ref.Place),
		text(HeaderClaimSize, strconv.FormatInt(ref.Size, 10)),
		text(HeaderClaimSHA256, hex.EncodeToString(ref.SHA256[:])),
		text(HeaderClaimType, ref.Type))
}

// Referred reports whether Refer was called.
func (e *Event) Referred() bool { return e.referred }

// Renew notes that the value behind a reference made by others stays for another time of
// retention.
func (e *Event) Renew() { e.renewed = true }

// Renewed reports whether Renew was called.
func (e *Event) Renewed() bool { return e.renewed }

// StoredSize is the size of the value that a record refers to; 0: the record has its own.
func StoredSize(rec *kgo.Record) int64 {
	ref, ok := ReferenceOf(rec)
	if !ok {
		return 0
	}
	return ref.Size
}

// Restore gives a record made by others the value of its reference again.
func (e *Event) Restore(value []byte) {
	e.Record.Value, e.Record.Headers = value, WithoutReference(e.Record.Headers)
}

// PlainHeaders are the headers without a reference made by Refer.
func (e *Event) PlainHeaders() []kgo.RecordHeader {
	if e.referred {
		return WithoutReference(e.Record.Headers)
	}
	return e.Record.Headers
}

// SmallestReferred is the least size of values kept outside of Kafka.
const SmallestReferred = 1 << 10

// Fingerprint stands for the record's value, here or elsewhere: a small value itself, or the
// hash of a large one.
func Fingerprint(rec *kgo.Record) []byte {
	if len(rec.Value) >= SmallestReferred {
		sum := sha256.Sum256(rec.Value)
		return sum[:]
	}
	if ref, ok := ReferenceOf(rec); ok {
		return ref.SHA256[:]
	}
	return rec.Value
}
