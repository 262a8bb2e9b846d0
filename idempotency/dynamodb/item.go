package dynamodb

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// The attributes of an item. Times are microseconds since 1970, except ttl: in
// seconds, for DynamoDB.
const (
	attrKey         = "pk" // scope/id
	attrState       = "state"
	attrFingerprint = "fingerprint"
	attrOwner       = "owner"
	attrFence       = "fence"
	attrAttempts    = "attempts"
	attrVanished    = "vanished"
	attrExcused     = "excused"
	attrLeaseUntil  = "lease_until"
	attrRetryAt     = "retry_at"
	attrResult      = "result"
	attrReason      = "reason"
	attrUpdatedAt   = "updated_at"
	attrExpiresAt   = "expires_at"
	attrVersion     = "version" // random, new with each write
	attrTTL         = "ttl"
)

// ttlSlack is how long a record stays at least after its end, so that a client
// whose estimate of the time is late still sees the fence.
const ttlSlack = time.Minute

// maxResultBytes bounds a result: DynamoDB's limit for an item, 400 KB with the
// names of the attributes, less the greatest size of an item's rest.
const maxResultBytes = 400<<10 - maxRestBytes

// maxRestBytes is more than all attributes but result, with the longest key,
// owner, fingerprint and reason.
const maxRestBytes = 3 << 10

type attributes = map[string]types.AttributeValue

// item is a record as read. Without a version there was none.
type item struct {
	record  storage.Record
	version string
}

// encode returns the item of a record; attributes without a value are left out.
func encode(r storage.Record, version string) attributes {
	a := attributes{
		attrKey:       text(r.Key.String()),
		attrState:     text(r.State.String()),
		attrFence:     number(r.Fence),
		attrVersion:   text(version),
		attrUpdatedAt: instantNumber(r.UpdatedAt),
		attrExpiresAt: instantNumber(r.ExpiresAt),
		attrTTL:       number(ttl(r.ExpiresAt)),
	}
	if r.State == storage.Absent {
		return a
	}
	a[attrAttempts] = number(int64(r.Attempts))
	for name, n := range map[string]int{attrVanished: r.Vanished, attrExcused: r.Excused} {
		if n != 0 {
			a[name] = number(int64(n))
		}
	}
	for name, s := range map[string]string{attrFingerprint: string(r.Fingerprint), attrOwner: r.Owner, attrReason: r.Reason} {
		if s != "" {
			a[name] = text(s)
		}
	}
	for name, t := range map[string]time.Time{attrLeaseUntil: r.LeaseUntil, attrRetryAt: r.RetryAt} {
		if !t.IsZero() {
			a[name] = instantNumber(t)
		}
	}
	if r.Result != nil {
		a[attrResult] = &types.AttributeValueMemberB{Value: r.Result}
	}
	return a
}

// ttl is the second after which DynamoDB may delete an item.
func ttl(expiresAt time.Time) int64 { return expiresAt.Add(ttlSlack).Unix() + 1 }

// decode is the inverse of encode. An item lacking attributes, as a
// projection's, gives a record lacking them.
func decode(key storage.Key, a attributes) (item, error) {
	it := item{record: storage.Record{Key: key}}
	if len(a) == 0 {
		return it, nil
	}
	d := decoder{attributes: a}
	it.version = d.text(attrVersion)
	r := &it.record
	r.State = d.state()
	r.Fence = d.number(attrFence)
	r.Attempts = int(d.number(attrAttempts))
	r.Vanished, r.Excused = int(d.number(attrVanished)), int(d.number(attrExcused))
	r.Fingerprint = storage.Fingerprint(d.text(attrFingerprint))
	r.Owner, r.Reason = d.text(attrOwner), d.text(attrReason)
	r.LeaseUntil, r.RetryAt = d.instant(attrLeaseUntil), d.instant(attrRetryAt)
	r.UpdatedAt, r.ExpiresAt = d.instant(attrUpdatedAt), d.instant(attrExpiresAt)
	r.Result = d.bytes(attrResult)
	if d.err == nil && it.version == "" {
		d.err = fmt.Errorf("attribute %s is missing", attrVersion)
	}
	if d.err != nil {
		return item{}, fmt.Errorf("read item %s, which something else may have written: %w", key, d.err)
	}
	return it, nil
}

// keyOf returns the key an item's partition key stands for.
func keyOf(a attributes) (storage.Key, error) {
	s, ok := a[attrKey].(*types.AttributeValueMemberS)
	if !ok {
		return storage.Key{}, fmt.Errorf("attribute %s is not a string", attrKey)
	}
	scope, id, _ := strings.Cut(s.Value, "/") // no scope has a slash
	key := storage.Key{Scope: scope, ID: id}
	return key, key.Validate()
}

// decoder reads attributes; the first error sticks. A missing attribute is the
// zero value.
type decoder struct {
	attributes attributes
	err        error
}

func (d *decoder) text(name string) string {
	v, ok := member[*types.AttributeValueMemberS](d, name)
	if !ok {
		return ""
	}
	return v.Value
}

func (d *decoder) bytes(name string) []byte {
	v, ok := member[*types.AttributeValueMemberB](d, name)
	switch {
	case !ok:
		return nil
	case v.Value == nil:
		return []byte{} // an empty result is a result
	}
	return v.Value
}

func (d *decoder) number(name string) int64 {
	v, ok := member[*types.AttributeValueMemberN](d, name)
	if !ok {
		return 0
	}
	n, err := strconv.ParseInt(v.Value, 10, 64)
	if err != nil {
		d.fail(name, err)
	}
	return n
}

func (d *decoder) instant(name string) time.Time {
	if _, ok := d.attributes[name]; !ok {
		return time.Time{}
	}
	return time.UnixMicro(d.number(name))
}

func (d *decoder) state() (state storage.State) {
	if err := state.UnmarshalText([]byte(d.text(attrState))); err != nil {
		d.fail(attrState, err)
	}
	return state
}

func (d *decoder) fail(name string, err error) {
	if d.err == nil {
		d.err = fmt.Errorf("attribute %s: %w", name, err)
	}
}

func member[T types.AttributeValue](d *decoder, name string) (T, bool) {
	a, there := d.attributes[name]
	v, ok := a.(T)
	if there && !ok {
		d.fail(name, fmt.Errorf("unexpected type %T", a))
	}
	return v, ok
}

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func number(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

func instantNumber(t time.Time) types.AttributeValue { return number(t.UnixMicro()) }
