package claimcheck

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	"github.com/cdc-outbox/cdc-outbox/idempotency/claimcheck"
	"github.com/cdc-outbox/cdc-outbox/idempotency/claimcheck/s3"
	rows "github.com/cdc-outbox/cdc-outbox/idempotency/claimcheck/table"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/cloud"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/s3server"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// place is a store for a test, with the consumer's reader.
type place struct {
	keeper   *Keeper
	consumer claimcheck.Store
	// count is the number of values, spoil changes all, empty deletes them.
	count        func() int
	spoil, empty func()
	down, up     func()
	// age makes all values old, and old counts those still so.
	age func()
	old func() int
}

func newEvent(id, value string) *transform.Event {
	return &transform.Event{ID: []byte(id), Record: kgo.Record{Topic: "t", Value: []byte(value), Headers: []kgo.RecordHeader{{Key: "id", Value: []byte(id)}}}}
}

func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func options(store string) Options {
	o := DefaultOptions()
	o.Store, o.Above = store, 1<<10
	return o
}

func bucketOptions(server *s3server.Server) Options {
	o := options(StoreS3)
	o.S3.Endpoint, o.S3.Region, o.S3.Bucket, o.S3.Prefix = server.Endpoint(), "us-east-1", "claims", "orders/"
	o.S3.AccessKey, o.S3.SecretKey = s3server.AccessKey, s3server.SecretKey
	return o
}

func keeperOf(t *testing.T, o Options, url string) *Keeper {
	t.Helper()
	k := must.Get(New(o, url, transform.FormatRaw, nil))(t)
	t.Cleanup(k.Close)
	return k
}

func files(t *testing.T, dir string) (found []string) {
	must.OK(t, filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			found = append(found, path)
		}
		return err
	}))
	return found
}

func s3Place(t *testing.T) *place {
	server := s3server.ForTest(t)
	dir := must.Get(server.Bucket("claims"))(t)
	client := must.Get(minio.New(server.Addr(), &minio.Options{Creds: credentials.NewStaticV4(s3server.AccessKey, s3server.SecretKey, ""), Region: "us-east-1"}))(t)
	return &place{
		keeper:   keeperOf(t, bucketOptions(server), ""),
		consumer: must.Get(s3.New(client, "claims"))(t),
		count:    func() int { return len(files(t, dir)) },
		spoil: func() {
			for _, path := range files(t, dir) {
				must.OK(t, os.WriteFile(path, bytes.Repeat([]byte("y"), 3000), 0o600))
			}
		},
		empty: func() {
			for _, path := range files(t, dir) {
				must.OK(t, os.Remove(path))
			}
		},
		age: func() {
			for _, path := range files(t, dir) {
				then := time.Now().Add(-aged)
				must.OK(t, os.Chtimes(path, then, then))
			}
		},
		old: func() (n int) {
			for _, path := range files(t, dir) {
				if info := must.Get(os.Stat(path))(t); time.Since(info.ModTime()) >= aged {
					n++
				}
			}
			return n
		},
		down: func() { must.OK(t, server.Server.Close()) },
		up:   func() { must.OK(t, server.Resume(limited(t))) },
	}
}

func tablePlace(t *testing.T) *place {
	url := pgtest.Shared(t).NewDatabase(t)
	conn := must.Get(pgx.Connect(limited(t), url))(t)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	exec := func(sql string) { must.Get(conn.Exec(limited(t), sql))(t) }
	for _, sql := range TableSQL(must.Get(pg.ParseTable("cdc_outbox_claims"))(t)) {
		exec(sql)
	}
	pool := must.Get(pgxpool.New(limited(t), url))(t)
	t.Cleanup(pool.Close)
	return &place{
		keeper:   keeperOf(t, options(StoreTable), url),
		consumer: rows.PGX(pool, ""),
		count: func() (n int) {
			must.OK(t, conn.QueryRow(limited(t), `SELECT count(*) FROM cdc_outbox_claims`).Scan(&n))
			return n
		},
		spoil: func() { exec(`UPDATE cdc_outbox_claims SET value = convert_to(repeat('y', 3000), 'UTF8')`) },
		empty: func() { exec(`DELETE FROM cdc_outbox_claims`) },
		age:   func() { exec(`UPDATE cdc_outbox_claims SET stored = now() - interval '2 hours'`) },
		old: func() (n int) {
			must.OK(t, conn.QueryRow(limited(t), `SELECT count(*) FROM cdc_outbox_claims WHERE stored < now() - interval '1 hour'`).Scan(&n))
			return n
		},
		down: func() { exec(`ALTER TABLE cdc_outbox_claims RENAME TO away`) },
		up:   func() { exec(`ALTER TABLE away RENAME TO cdc_outbox_claims`) },
	}
}

// aged is an age beyond the retention.
const aged = 2 * time.Hour

// The duties of both stores, with the reader of the consumer's library.
func TestStores(t *testing.T) {
	for name, newPlace := range map[string]func(*testing.T) *place{"s3": s3Place, "table": tablePlace} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			must.OK(t, p.keeper.Reach(limited(t)))
			if removable, err := p.keeper.Try(limited(t)); err != nil || removable != nil {
				t.Fatal(removable, err)
			}
			if n := p.count(); n != 0 {
				t.Errorf("the probe leaves %d values", n)
			}
			t.Run("a value is kept and fetched", func(t *testing.T) { fetches(t, p) })
			t.Run("a repetition is the same value", func(t *testing.T) { repeats(t, p) })
			t.Run("strange ids are apart", func(t *testing.T) { strangeIDs(t, p) })
			t.Run("a value is renewed", func(t *testing.T) { renews(t, p) })
			t.Run("another value is refused", func(t *testing.T) { mismatches(t, p) })
			t.Run("a missing value is told", func(t *testing.T) { gone(t, p) })
			t.Run("the store away", func(t *testing.T) { away(t, p) })
		})
	}
}

func fetches(t *testing.T, p *place) {
	value := strings.Repeat("x", 3<<20)
	ev := newEvent("one", value)
	must.OK(t, p.keeper.Put(limited(t), ev))
	got := must.Get(claimcheck.Fetch(limited(t), p.consumer, ev.Record.Value, ev.Record.Headers))(t)
	if string(got) != value || len(ev.Record.Value) != 0 || ev.Record.Value == nil {
		t.Errorf("fetched %d bytes, the record has %v", len(got), ev.Record.Value)
	}
	ref, ok := claimcheck.Of(ev.Record.Value, ev.Record.Headers)
	if !ok || ref.Type != "application/octet-stream" || ref.Fingerprint() != idempotency.FingerprintBytes([]byte(value)) {
		t.Errorf("reference %+v", ref)
	}
	got = must.Get(claimcheck.Fetch(limited(t), p.consumer, nil, ev.Record.Headers))(t)
	if string(got) != value {
		t.Errorf("fetched %d bytes, given nil for the empty value as by segmentio's client", len(got))
	}
	again := &transform.Event{ID: ev.ID, Record: ev.Record}
	must.OK(t, p.keeper.Get(limited(t), again))
	if string(again.Record.Value) != value || len(again.Record.Headers) != 1 {
		t.Errorf("restored %d bytes, headers %v", len(again.Record.Value), again.Record.Headers)
	}
}

// Two instances write the same claim at the same time, and neither harms the other.
func repeats(t *testing.T, p *place) {
	before := p.count()
	value := strings.Repeat("z", 5000)
	var both sync.WaitGroup
	events := make([]*transform.Event, 8)
	for i := range events {
		events[i] = newEvent("twice", value)
		both.Go(func() {
			if err := p.keeper.Put(limited(t), events[i]); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	other := newEvent("twice", value+"!")
	must.OK(t, p.keeper.Put(limited(t), other))
	if n := p.count() - before; n != 2 {
		t.Errorf("%d values of two contents", n)
	}
	for _, ev := range slices.Concat(events, []*transform.Event{other}) {
		got := must.Get(claimcheck.Fetch(limited(t), p.consumer, ev.Record.Value, ev.Record.Headers))(t)
		if _, want := ev.Plain(); !bytes.Equal(got, want) {
			t.Error("another value is fetched")
		}
	}
}

func strangeIDs(t *testing.T, p *place) {
	before := p.count()
	ids := []string{"", "a/b", "../../etc", ".", "ü", "%2F", strings.Repeat("i", 300), "\x00\xff", "a b", "~x"}
	for _, id := range ids {
		ev := newEvent(id, strings.Repeat("v", 2000))
		must.OK(t, p.keeper.Put(limited(t), ev))
		must.Get(claimcheck.Fetch(limited(t), p.consumer, ev.Record.Value, ev.Record.Headers))(t)
	}
	if n := p.count() - before; n != len(ids) {
		t.Errorf("%d values of %d events", n, len(ids))
	}
}

func renews(t *testing.T, p *place) {
	ev := newEvent("again", strings.Repeat("r", 3000))
	ev.Record.Headers = append(ev.Record.Headers, kgo.RecordHeader{Key: "content-type", Value: []byte("text/x")})
	must.OK(t, p.keeper.Put(limited(t), ev))
	p.age()
	before := p.old()
	again := &transform.Event{Record: kgo.Record{Topic: "t", Value: ev.Record.Value, Headers: slices.Clone(ev.Record.Headers)}}
	must.OK(t, p.keeper.Renew(limited(t), again))
	if n := p.old(); n != before-1 || !again.Renewed() || fmt.Sprint(again.Record.Headers) != fmt.Sprint(ev.Record.Headers) {
		t.Errorf("%d of %d values are old; headers %v", n, before, again.Record.Headers)
	}
	got := must.Get(claimcheck.Fetch(limited(t), p.consumer, again.Record.Value, again.Record.Headers))(t)
	if _, want := ev.Plain(); !bytes.Equal(got, want) {
		t.Error("another value is fetched")
	}
}

func mismatches(t *testing.T, p *place) {
	ev := newEvent("spoiled", strings.Repeat("x", 3000))
	must.OK(t, p.keeper.Put(limited(t), ev))
	p.spoil()
	if _, err := claimcheck.Fetch(limited(t), p.consumer, ev.Record.Value, ev.Record.Headers); !errors.Is(err, claimcheck.ErrMismatch) {
		t.Errorf("fetch: %v", err)
	}
	err := p.keeper.Get(limited(t), &transform.Event{Record: ev.Record})
	if bad, ok := errors.AsType[*transform.BadEvent](err); !ok || bad.Reason != transform.ReasonClaimGone {
		t.Errorf("get: %v", err)
	}
}

func gone(t *testing.T, p *place) {
	ev := newEvent("gone", strings.Repeat("x", 3000))
	must.OK(t, p.keeper.Put(limited(t), ev))
	p.empty()
	if _, err := claimcheck.Fetch(limited(t), p.consumer, ev.Record.Value, ev.Record.Headers); !errors.Is(err, claimcheck.ErrGone) {
		t.Errorf("fetch: %v", err)
	}
	lost := func(words string) {
		t.Helper()
		again := &transform.Event{Record: ev.Record}
		for what, err := range map[string]error{"get": p.keeper.Get(limited(t), again), "renew": p.keeper.Renew(limited(t), again)} {
			if bad, ok := errors.AsType[*transform.BadEvent](err); !ok || bad.Reason != transform.ReasonClaimGone || !strings.Contains(err.Error(), words) || again.Renewed() {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
	lost("not in the claim store")
	for i := range ev.Record.Headers {
		if ev.Record.Headers[i].Key == claimcheck.HeaderPlace {
			ev.Record.Headers[i].Value = []byte("s3://elsewhere/x")
		}
	}
	if _, err := claimcheck.Fetch(limited(t), p.consumer, ev.Record.Value, ev.Record.Headers); !errors.Is(err, claimcheck.ErrElsewhere) {
		t.Errorf("fetch: %v", err)
	}
	lost("in another store than that of claim_check")
}

func away(t *testing.T, p *place) {
	p.down()
	ev := newEvent("late", strings.Repeat("x", 3000))
	err := p.keeper.Put(limited(t), ev)
	if err == nil || failure.RemedyOf(err) == "" || ev.Referred() {
		t.Errorf("put: %v, remedy %q, referred %v", err, failure.RemedyOf(err), ev.Referred())
	}
	if err := p.keeper.Reach(limited(t)); err == nil {
		t.Error("the store is in reach")
	}
	p.up()
	must.OK(t, p.keeper.Put(limited(t), ev))
}

// Refusals of a real server have a class and a remedy.
func TestS3Refuses(t *testing.T) {
	server := s3server.ForTest(t)
	must.Get(server.Bucket("claims"))(t)
	for name, change := range map[string]func(*S3){
		"secret": func(o *S3) { o.SecretKey = "wrong" },
		"key":    func(o *S3) { o.AccessKey = "wrong" },
		"bucket": func(o *S3) { o.Bucket = "missing" },
	} {
		t.Run(name, func(t *testing.T) {
			o := bucketOptions(server)
			change(&o.S3)
			k := keeperOf(t, o, "")
			for what, err := range map[string]error{"put": k.Put(limited(t), newEvent("a", strings.Repeat("x", 3000))), "reach": k.Reach(limited(t))} {
				if failure.ClassOf(err) != failure.Config || !strings.Contains(failure.RemedyOf(err), map[string]string{"secret": "credentials", "key": "credentials", "bucket": "create bucket missing"}[name]) {
					t.Errorf("%s: %v; %s", what, err, failure.RemedyOf(err))
				}
			}
		})
	}
}

// A secret in a file is read for each request. A refusal waits for the rotation; a useless file
// leaves the former secret.
func TestS3SecretIsReadAgain(t *testing.T) {
	server := s3server.ForTest(t)
	must.Get(server.Bucket("claims"))(t)
	file := filepath.Join(t.TempDir(), "secret")
	must.OK(t, os.WriteFile(file, []byte("of yesterday"), 0o600))
	o := bucketOptions(server)
	o.S3.SecretKey, o.Written = "of yesterday", setting.Files{"secret_key": {{Path: file}}}
	k := keeperOf(t, o, "")
	put := func() error { return k.Put(limited(t), newEvent("a", strings.Repeat("x", 3000))) }
	if err := put(); err == nil || failure.ClassOf(err) != failure.Transient || !strings.Contains(failure.RemedyOf(err), file) {
		t.Errorf("class %v, remedy %q: %v", failure.ClassOf(err), failure.RemedyOf(err), err)
	}
	must.OK(t, os.WriteFile(file, []byte(s3server.SecretKey), 0o600))
	must.OK(t, put())
	must.OK(t, os.Remove(file))
	must.OK(t, put())
	if troubles := o.Present(); len(troubles) != 1 || !strings.HasPrefix(troubles[0].Error(), "claim_check.s3.secret_key ") {
		t.Errorf("troubles %v", troubles)
	}
}

// Requests are signed with the workload's present credentials. A source that is away is named.
func TestS3ByIdentity(t *testing.T) {
	c := cloud.New(t)
	c.WebIdentity(t)
	used := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, _, _ := strings.Cut(strings.TrimPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential="), "/")
		if keys, ok := c.Keys(key); !ok || r.Header.Get("X-Amz-Security-Token") != keys.Session {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		used <- key
	}))
	t.Cleanup(server.Close)
	o := options(StoreS3)
	o.S3.Endpoint, o.S3.Region, o.S3.Bucket = server.URL, cloud.Region, "claims"
	k := keeperOf(t, o, "")
	put := func() error { return k.Put(limited(t), newEvent("a", strings.Repeat("x", 3000))) }
	must.OK(t, put())
	first := <-used
	t.Setenv("AWS_ROLE_SESSION_NAME", "another") // drops the credentials kept
	must.OK(t, put())
	if second := <-used; second == first {
		t.Error("the former credentials")
	}
	c.Answer(http.StatusServiceUnavailable)
	t.Setenv("AWS_ROLE_SESSION_NAME", "a third")
	err := put()
	if err == nil || failure.ClassOf(err) != failure.Transient || !strings.Contains(err.Error(), "AWS STS") || !strings.Contains(failure.RemedyOf(err), "AWS_ROLE_ARN") {
		t.Errorf("class %v, remedy %q: %v", failure.ClassOf(err), failure.RemedyOf(err), err)
	}
}

// Answers that no server here gives when asked: the class and the remedy of each.
func TestS3AnswersAreJudged(t *testing.T) {
	var status int
	var code string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `<?xml version="1.0"?><Error><Code>%s</Code><Message>as asked</Message></Error>`, code)
	}))
	t.Cleanup(server.Close)
	o := options(StoreS3)
	o.S3.Endpoint, o.S3.Region, o.S3.Bucket, o.S3.AccessKey, o.S3.SecretKey = server.URL, "us-east-1", "claims", "a", setting.Secret("b")
	k := keeperOf(t, o, "")
	for _, tt := range []struct {
		status int
		code   string
		class  failure.Class
		remedy string
		bad    bool
	}{
		{403, "RequestTimeTooSkewed", failure.Transient, "clock", false},
		{403, "AccessDenied", failure.Config, "s3:PutObject", false},
		{400, "ExpiredToken", failure.Config, "session_token", false},
		{400, "AuthorizationHeaderMalformed", failure.Config, "region", false},
		{400, "EntityTooLarge", failure.Config, "limit", true},
		{429, "TooManyRequests", failure.Transient, "requests", false},
		{503, "SlowDown", failure.Transient, "log", false},
		{507, "XMinioStorageFull", failure.Transient, "disks", false},
	} {
		t.Run(tt.code, func(t *testing.T) {
			status, code = tt.status, tt.code
			err := k.Put(limited(t), newEvent("a", strings.Repeat("x", 3000)))
			_, bad := errors.AsType[*transform.BadEvent](err)
			if err == nil || failure.ClassOf(err) != tt.class || !strings.Contains(failure.RemedyOf(err), tt.remedy) || bad != tt.bad {
				t.Errorf("class %v, remedy %q: %v", failure.ClassOf(err), failure.RemedyOf(err), err)
			}
		})
	}
}

// A silent server does not hold a value for longer than the timeout.
func TestS3IsSilent(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(release) })
	o := options(StoreS3)
	o.Timeout = 200 * time.Millisecond
	o.S3.Endpoint, o.S3.Region, o.S3.Bucket, o.S3.AccessKey, o.S3.SecretKey = server.URL, "us-east-1", "claims", "a", setting.Secret("b")
	err := keeperOf(t, o, "").Put(limited(t), newEvent("a", strings.Repeat("x", 3000)))
	if err == nil || failure.ClassOf(err) != failure.Transient || !strings.Contains(err.Error(), "has not answered within") {
		t.Errorf("got %v", err)
	}
}

// The table keeps values for the retention, and those written again from then on.
func TestTableForgets(t *testing.T) {
	url := pgtest.Shared(t).NewDatabase(t)
	conn := must.Get(pgx.Connect(limited(t), url))(t)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	o := options(StoreTable)
	o.Retention = time.Hour
	k := keeperOf(t, o, url)
	if err := k.Reach(limited(t)); failure.ClassOf(err) != failure.Config || !strings.Contains(failure.RemedyOf(err), "CREATE TABLE") {
		t.Errorf("without a table: %v; %s", err, failure.RemedyOf(err))
	}
	for _, sql := range TableSQL(must.Get(pg.ParseTable("cdc_outbox_claims"))(t)) {
		must.Get(conn.Exec(limited(t), sql))(t)
	}
	for i := range sweepRows + 2 {
		must.OK(t, k.Put(limited(t), newEvent(fmt.Sprint(i), strings.Repeat("x", 2000))))
	}
	must.Get(conn.Exec(limited(t), `UPDATE cdc_outbox_claims SET stored = now() - interval '2 hours'`))(t)
	must.OK(t, k.Put(limited(t), newEvent("0", strings.Repeat("x", 2000))))
	first, more, err := k.Sweep(limited(t))
	if first != sweepRows || !more || err != nil {
		t.Errorf("%d, %v, %v", first, more, err)
	}
	if rest, more, err := k.Sweep(limited(t)); rest != 1 || more || err != nil {
		t.Errorf("%d, %v, %v", rest, more, err)
	}
}
