package audit

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/transform"
)

// digest stands for the key, the value and the headers of a record.
type digest [16]byte

// digestOf leaves out the headers of a publication, and the order of headers with
// different names.
func digestOf(r *kgo.Record) (d digest) {
	hash := sha256.New()
	part := func(b []byte) {
		length := int64(len(b))
		if b == nil { // a null is not an empty text
			length = -1
		}
		_, _ = hash.Write(binary.LittleEndian.AppendUint64(nil, uint64(length))) // never fails
		_, _ = hash.Write(b)
	}
	value, headers := contentOf(r)
	part(r.Key)
	part(value)
	for _, h := range lasting(headers) {
		part([]byte(h.Key))
		part(h.Value)
	}
	copy(d[:], hash.Sum(nil))
	return d
}

// contentOf is what stands for the record's value, here or elsewhere, and the headers beside.
func contentOf(r *kgo.Record) (value []byte, headers []kgo.RecordHeader) {
	value, headers = transform.Timeless(r)
	plain := kgo.Record{Value: value, Headers: headers}
	if _, referred := transform.ReferenceOf(&plain); referred {
		headers = transform.WithoutReference(headers)
	}
	return transform.Fingerprint(&plain), headers
}

// lasting are the headers of the event itself, by name.
func lasting(headers []kgo.RecordHeader) []kgo.RecordHeader {
	kept := slices.DeleteFunc(slices.Clone(headers), func(h kgo.RecordHeader) bool { return transform.OfPublication(h.Key) })
	slices.SortStableFunc(kept, func(a, b kgo.RecordHeader) int { return cmp.Compare(a.Key, b.Key) })
	return kept
}

// Differing names the parts in which a record differs from the record of the row now:
// "key", "value", "header NAME", "topic", "partition". Without a partition named by the
// row, the partitioner's choice does not count.
func Differing(row, rec *kgo.Record) (parts []string) {
	differ := func(part string, is bool) {
		if is {
			parts = append(parts, part)
		}
	}
	differ("key", !alike(row.Key, rec.Key))
	rowValue, rowHeaders := contentOf(row)
	recValue, recHeaders := contentOf(rec)
	differ("value", !alike(rowValue, recValue))
	ours, theirs := byName(rowHeaders), byName(recHeaders)
	names := slices.AppendSeq(slices.Collect(maps.Keys(ours)), maps.Keys(theirs))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		differ("header "+name, !slices.EqualFunc(ours[name], theirs[name], alike))
	}
	differ("topic", row.Topic != rec.Topic)
	differ("partition", row.Partition >= 0 && row.Partition != rec.Partition)
	return parts
}

func byName(headers []kgo.RecordHeader) map[string][][]byte {
	values := make(map[string][][]byte)
	for _, h := range lasting(headers) {
		values[h.Key] = append(values[h.Key], h.Value)
	}
	return values
}

// alike tells a null from an empty text.
func alike(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }
