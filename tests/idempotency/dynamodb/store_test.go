package dynamodb_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/cdc-outbox/cdc-outbox/idempotency/dynamodb"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// recorder notes the passing calls, and whether the reads are consistent.
type recorder struct {
	*sdk.Client
	mu         sync.Mutex
	calls      []string
	eventually int
	afterScan  func()
}

func (r *recorder) note(call string, consistent *bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, call)
	if !aws.ToBool(consistent) {
		r.eventually++
	}
}

func (r *recorder) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = nil
}

func (r *recorder) GetItem(ctx context.Context, in *sdk.GetItemInput, o ...func(*sdk.Options)) (*sdk.GetItemOutput, error) {
	r.note("get", in.ConsistentRead)
	return r.Client.GetItem(ctx, in, o...)
}

func (r *recorder) PutItem(ctx context.Context, in *sdk.PutItemInput, o ...func(*sdk.Options)) (*sdk.PutItemOutput, error) {
	r.note("put", aws.Bool(true))
	return r.Client.PutItem(ctx, in, o...)
}

func (r *recorder) UpdateItem(ctx context.Context, in *sdk.UpdateItemInput, o ...func(*sdk.Options)) (*sdk.UpdateItemOutput, error) {
	r.note("update", aws.Bool(true))
	return r.Client.UpdateItem(ctx, in, o...)
}

func (r *recorder) Scan(ctx context.Context, in *sdk.ScanInput, o ...func(*sdk.Options)) (*sdk.ScanOutput, error) {
	r.note("scan", in.ConsistentRead)
	out, err := r.Client.Scan(ctx, in, o...)
	if r.afterScan != nil {
		r.afterScan()
	}
	return out, err
}

func TestCallsPerMethod(t *testing.T) {
	f := newFixture(t)
	r := &recorder{Client: f.client}
	s := must.Get(dynamodb.New(r, dynamodb.Options{Table: f.table, Now: f.clock.now}))(t)
	k := key("1")
	var lease storage.Lease
	claim := func(owner string) func() error {
		return func() error {
			c, err := s.Claim(t.Context(), k, request(owner))
			lease = c.Lease
			return err
		}
	}
	for _, step := range []struct {
		name string
		do   func() error
		want string
	}{
		{"the first call asks for the time", claim("a"), "get put"},
		{"repeated claim", claim("a"), "put put"},
		{"extend", func() error { return s.Extend(t.Context(), lease, time.Minute) }, "update"},
		{"extend beyond the retention", func() error { return s.Extend(t.Context(), lease, 2*time.Hour) }, "update put"},
		{"fail", func() error { return s.Fail(t.Context(), lease, storage.Failure{Retention: time.Hour}) }, "update"},
		{"failed again", func() error { return s.Fail(t.Context(), lease, storage.Failure{Retention: time.Hour}) }, "update"},
		{"next attempt", claim("b"), "put put"},
		{"unrun attempt", func() error {
			return s.Fail(t.Context(), lease, storage.Failure{Unrun: true, Retention: time.Hour})
		}, "get put"},
		{"after that", claim("c"), "put put"},
		{"complete", func() error { return s.Complete(t.Context(), lease, []byte("r"), time.Hour) }, "update"},
		{"complete again", func() error { return s.Complete(t.Context(), lease, []byte("r"), time.Hour) }, "update"},
		{"duplicate", claim("d"), "put"},
		{"new key", func() error { _, err := s.Claim(t.Context(), key("2"), request("e")); return err }, "put"},
		{"inspect", func() error { _, err := s.Inspect(t.Context(), k); return err }, "get"},
		{"release", func() error { _, err := s.Release(t.Context(), key("2")); return err }, "get put"},
		{"purge one", func() error { _, err := s.Purge(t.Context(), storage.Filter{Scope: k.Scope, ID: k.ID}); return err }, "get put"},
		{"purge of none", func() error { _, err := s.Purge(t.Context(), storage.Filter{Scope: k.Scope}); return err }, "scan"},
	} {
		r.reset()
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if got := strings.Join(r.calls, " "); got != step.want {
			t.Errorf("%s: %s; want %s", step.name, got, step.want)
		}
	}
	if r.eventually > 0 {
		t.Errorf("%d reads were not consistent", r.eventually)
	}
}

// Records not deleted by DynamoDB yet, days after the time to live, are
// forgotten all the same.
func TestForgottenRecordsNeedNotBeDeleted(t *testing.T) {
	f := newFixture(t)
	s := f.store(0)
	first := claimed(t, s, key("1"), "a")
	if err := s.Complete(t.Context(), first.Lease, []byte("old"), time.Minute); err != nil {
		t.Fatal(err)
	}
	f.clock.advance(time.Minute + time.Second)
	if r, err := s.Inspect(t.Context(), key("1")); err != nil || r.State != storage.Absent {
		t.Errorf("inspect: %s, %v; want absent", r.State, err)
	}
	if raw := f.raw(t, key("1")); raw["result"] == nil {
		t.Fatalf("the item is gone: %v", raw)
	}
	again := claimed(t, s, key("1"), "b")
	if again.Attempts != 1 || again.Lease.Fence <= first.Lease.Fence {
		t.Errorf("attempt %d with fence %d; want the first, beyond %d", again.Attempts, again.Lease.Fence, first.Lease.Fence)
	}
	if raw := f.raw(t, key("1")); raw["result"] != nil {
		t.Error("the forgotten result is still there")
	}
}

// raw returns the table's item.
func (f *fixture) raw(t testing.TB, k storage.Key) map[string]types.AttributeValue {
	t.Helper()
	out, err := f.client.GetItem(t.Context(), &sdk.GetItemInput{
		TableName: &f.table, ConsistentRead: aws.Bool(true),
		Key: map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: k.String()}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.Item
}

func TestItemsOutliveTheirRecords(t *testing.T) {
	f := newFixture(t)
	claimed(t, f.store(0), key("1"), "a")
	ends := f.clock.now().Add(time.Hour).Unix()
	var deletable time.Time
	if n, ok := f.raw(t, key("1"))["ttl"].(*types.AttributeValueMemberN); ok {
		d, err := time.ParseDuration(n.Value + "s")
		if err != nil {
			t.Fatal(err)
		}
		deletable = time.Unix(0, 0).Add(d)
	}
	if after := deletable.Unix() - ends; after < 60 || after > 62 {
		t.Errorf("the item may be deleted %d s after its end; want a minute", after)
	}
}

func TestLargestResultFits(t *testing.T) {
	f := newFixture(t)
	s := f.store(0)
	k := storage.Key{Scope: strings.Repeat("s", 100), ID: strings.Repeat("i", storage.MaxIDBytes)}
	owner := strings.Repeat("o", storage.MaxTokenBytes)
	fingerprint := storage.Fingerprint(strings.Repeat("f", storage.MaxTokenBytes))
	claim := func() storage.Lease {
		req := request(owner)
		req.Fingerprint = fingerprint
		c, err := s.Claim(t.Context(), k, req)
		if err != nil || c.Outcome != storage.Claimed {
			t.Fatal(c.Outcome, err)
		}
		return c.Lease
	}
	failure := storage.Failure{Reason: strings.Repeat("r", storage.MaxReasonBytes), Retention: time.Hour}
	if err := s.Fail(t.Context(), claim(), failure); err != nil {
		t.Fatal(err)
	}
	lease := claim()
	err := s.Complete(t.Context(), lease, make([]byte, maxResultBytes+1), time.Hour)
	if !errors.Is(err, storage.ErrResultTooLarge) {
		t.Errorf("one byte too many: %v; want ErrResultTooLarge", err)
	}
	if err := s.Complete(t.Context(), lease, make([]byte, maxResultBytes), time.Hour); err != nil {
		t.Error(err)
	}
	c, err := s.Claim(t.Context(), k, request("b"))
	if err != nil || c.Outcome != storage.Duplicate || len(c.Result) != maxResultBytes {
		t.Errorf("%s with %d bytes, %v", c.Outcome, len(c.Result), err)
	}
}

func TestEmptyResultIsNotNone(t *testing.T) {
	f := newFixture(t)
	s := f.store(0)
	for id, result := range map[string][]byte{"none": nil, "empty": {}} {
		if err := s.Complete(t.Context(), claimed(t, s, key(id), "a").Lease, result, time.Hour); err != nil {
			t.Fatal(err)
		}
		r, err := s.Inspect(t.Context(), key(id))
		if err != nil || (r.Result == nil) != (result == nil) || len(r.Result) > 0 {
			t.Errorf("%s: %#v, %v", id, r.Result, err)
		}
	}
}

func TestForeignItemsAreReported(t *testing.T) {
	f := newFixture(t)
	_, err := f.client.PutItem(t.Context(), &sdk.PutItemInput{TableName: &f.table, Item: map[string]types.AttributeValue{
		"pk":    &types.AttributeValueMemberS{Value: key("1").String()},
		"state": &types.AttributeValueMemberS{Value: "INPROGRESS"}, // as in another library
	}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.store(0).Claim(t.Context(), key("1"), request("a"))
	if err == nil || !strings.Contains(err.Error(), "INPROGRESS") || storage.Answered(err) {
		t.Errorf("%v; want an error that names the state", err)
	}
}
