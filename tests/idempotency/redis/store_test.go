package redis_test

import (
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/cdc-outbox/cdc-outbox/idempotency/redis"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/redistest"
)

func TestNewRefuses(t *testing.T) {
	client := goredis.NewClient(&goredis.Options{})
	defer client.Close()
	ring := goredis.NewRing(&goredis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	for name, test := range map[string]struct {
		client  goredis.UniversalClient
		options redis.Options
		want    string
	}{
		"no client":                            {want: "client"},
		"a ring":                               {client: ring, want: "Ring"},
		"braces in the prefix":                 {client: client, options: redis.Options{Prefix: "{a}"}, want: "Prefix"},
		"a negative limit":                     {client: client, options: redis.Options{MaxResultBytes: -1}, want: "MaxResultBytes"},
		"negative replicas":                    {client: client, options: redis.Options{WaitReplicas: -1}, want: "WaitReplicas"},
		"a wait that the server would not end": {client: client, options: redis.Options{WaitTimeout: 1}, want: "WaitTimeout"},
		"a wait that the client would cut": {
			client: client, options: redis.Options{WaitReplicas: 1, WaitTimeout: time.Minute}, want: "ReadTimeout",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := redis.New(test.client, test.options); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("New: %v, want an error that names %s", err, test.want)
			}
		})
	}
}

func TestServerForgetsAfterTheRetention(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	s := newStore(t, client, redis.Options{})
	name := prefix(t) + ":{shipping/order-1}"
	within := func(when string, want time.Duration) {
		t.Helper()
		got, err := client.PTTL(t.Context(), name).Result()
		if err != nil || got > want+time.Millisecond || got < want-time.Minute {
			t.Errorf("%s the key lives for %s, %v, want %s", when, got, err, want)
		}
	}
	lease := claim(t, s, key, request())
	within("claimed,", 24*time.Hour)
	if err := s.Extend(t.Context(), lease, 48*time.Hour); err != nil {
		t.Fatal(err)
	}
	within("extended,", 48*time.Hour)
	if err := s.Complete(t.Context(), lease, []byte("shipped"), time.Hour); err != nil {
		t.Fatal(err)
	}
	within("completed,", time.Hour)
}

func TestLongestDurationsStayExact(t *testing.T) {
	s := newStore(t, redistest.Shared(t).Client(t), redis.Options{})
	const ever = time.Duration(1<<63 - 1)
	req := request()
	req.Lease, req.Retention = ever, ever
	lease := claim(t, s, key, req)
	complete(t, s, lease, "")
	r, err := s.Inspect(t.Context(), key)
	if err != nil || r.State != storage.Completed || r.Fence != lease.Fence {
		t.Errorf("record %+v, %v, want completed with fence %d", r, err, lease.Fence)
	}
}

// A state of another library, or of a later version, is not taken for none.
func TestAnUnknownStateIsNamed(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	s := newStore(t, client, redis.Options{})
	claim(t, s, key, request())
	names, err := client.Keys(t.Context(), prefix(t)+":*").Result()
	if err != nil || len(names) != 1 {
		t.Fatalf("keys: %q, %v", names, err)
	}
	record := client.Get(t.Context(), names[0]).Val()
	if !strings.Contains(record, "processing") {
		t.Fatalf("the record, %q, does not have its state", record)
	}
	// The two are equally long.
	do(t, client, "SET", names[0], strings.Replace(record, "processing", "INPROGRESS", 1), "KEEPTTL")
	_, claimErr := s.Claim(t.Context(), key, request())
	_, inspectErr := s.Inspect(t.Context(), key)
	for _, err := range []error{claimErr, inspectErr} {
		if err == nil || !strings.Contains(err.Error(), `"INPROGRESS"`) || storage.Answered(err) {
			t.Errorf("%v; want an error that names the state", err)
		}
	}
}

func TestKeysDoNotCollide(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	s := newStore(t, client, redis.Options{})
	for _, k := range []storage.Key{
		{Scope: "a", ID: "b"}, {Scope: "a", ID: "b}"}, {Scope: "a", ID: "b%7D"}, {Scope: "a", ID: "b%"}, {Scope: "a", ID: "b%25"},
		{Scope: "a", ID: "}"}, {Scope: "a", ID: "{b}"}, {Scope: "a", ID: "{"}, {Scope: "a", ID: "b/c"}, {Scope: "a.b", ID: "c"},
		{Scope: "a", ID: " \r\n\tü*?[]^\\"},
	} {
		claim(t, s, k, request()) // each for the first time
	}
	names, err := client.Keys(t.Context(), prefix(t)+":*").Result()
	if err != nil || len(names) == 0 {
		t.Fatalf("keys: %q, %v", names, err)
	}
	for _, name := range names {
		if strings.Index(name, "}") != len(name)-1 {
			t.Errorf("the hash tag of %q is not the whole key", name)
		}
	}
	other := newStore(t, redistest.Shared(t).Client(t), redis.Options{Prefix: prefix(t) + "-other"})
	claim(t, other, storage.Key{Scope: "a", ID: "b"}, request())
}

func TestPurgeKeepsToItsScope(t *testing.T) {
	for name, client := range map[string]goredis.UniversalClient{
		"one server": redistest.Shared(t).Client(t),
		"cluster":    redistest.StartCluster(t).Client(t),
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t, client, redis.Options{Prefix: `p*[a-z]?^\` + prefix(t)})
			other := newStore(t, client, redis.Options{Prefix: `pxa?^\` + prefix(t)})
			const many = 2500 // more than a batch
			for i := range many {
				k := storage.Key{Scope: "a.b", ID: strings.Repeat("i", i%7) + string(rune('a'+i%26)) + time.Duration(i).String()}
				complete(t, s, claim(t, s, k, request()), "")
			}
			stay := map[storage.Key]*redis.Store{
				{Scope: "a-b", ID: "x"}: s, {Scope: "axb", ID: "x"}: s, {Scope: "a.bc", ID: "x"}: s, {Scope: "a", ID: "b/x"}: s,
				{Scope: "a.b", ID: "x"}: other,
			}
			for k, in := range stay {
				complete(t, in, claim(t, in, k, request()), "")
			}
			running := claim(t, s, storage.Key{Scope: "a.b", ID: "running"}, request())

			if n, err := s.Purge(t.Context(), storage.Filter{Scope: "a.b"}); n != many || err != nil {
				t.Errorf("purge: %d, %v, want %d", n, err, many)
			}
			for k, in := range stay {
				if got := outcome(t, in, k); got != storage.Duplicate {
					t.Errorf("%s is %s, want %s", k, got, storage.Duplicate)
				}
			}
			complete(t, s, running, "")
			if n, err := s.Purge(t.Context(), storage.Filter{Scope: "a.b", ID: "running"}); n != 1 || err != nil {
				t.Errorf("purge of one: %d, %v, want 1", n, err)
			}
		})
	}
}

func TestE2ESlotThatMoves(t *testing.T) {
	for name, c := range map[string]struct {
		replicas int
		readOnly bool
	}{"calls": {}, "calls that wait for replicas": {replicas: 1}, "calls of a client that reads from replicas": {readOnly: true}} {
		t.Run(name, func(t *testing.T) {
			cluster, replicas := redistest.StartCluster(t), c.replicas
			for _, node := range cluster.Nodes {
				enough(t, node, true)
			}
			client := cluster.Client(t, func(o *goredis.ClusterOptions) { o.Username, o.Password, o.ReadOnly = "app", "secret", c.readOnly })
			s := newStore(t, client, redis.Options{WaitReplicas: replicas, WaitTimeout: time.Millisecond})
			// The cluster has no replicas to wait for: an error only with WaitReplicas.
			tolerate := func(err error) {
				t.Helper()
				if replicas == 0 && err != nil || replicas > 0 && !tooFewReplicas(err) {
					t.Fatalf("with %d replicas to wait for: %v", replicas, err)
				}
			}
			_, err := s.Claim(t.Context(), key, request())
			tolerate(err)
			held, err := s.Inspect(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			lease := storage.Lease{Key: key, Owner: held.Owner, Fence: held.Fence}
			end := moveKey(t, cluster, prefix(t)+":{shipping/order-1}")
			err = s.Extend(t.Context(), lease, time.Hour)
			if err != nil {
				t.Errorf("extend while the slot is being moved: %v", err)
			}
			err = s.Complete(t.Context(), lease, nil, time.Hour)
			switch waits := replicas > 0; {
			case !waits && err != nil:
				t.Errorf("complete while the slot is being moved: %v", err)
			case waits && (err == nil || !strings.Contains(err.Error(), "being moved") || storage.Answered(err)):
				t.Errorf("complete while the slot is being moved: %v, want no answer", err)
			}
			end()
			if replicas > 0 { // the client learns in the background where the slot is
				await.Until(t, "the client finds the key", func() bool {
					return tooFewReplicas(s.Complete(t.Context(), lease, nil, time.Hour))
				})
			}
			tolerate(s.Complete(t.Context(), lease, nil, time.Hour))
			if got := outcome(t, s, key); got != storage.Duplicate {
				t.Errorf("%s, want %s", got, storage.Duplicate)
			}
		})
	}
}

func TestPurgeTakesThePrefixLiterally(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	for prefix, looksLike := range map[string]string{
		"p*q": "pxxq", "p?q": "pxq", "p[xy]q": "pxq", "p[^x]q": "pyq", "p[x-z]q": "pyq", `p\q`: "pq",
	} {
		s, other := newStore(t, client, redis.Options{Prefix: prefix}), newStore(t, client, redis.Options{Prefix: looksLike})
		complete(t, s, claim(t, s, key, request()), "")
		complete(t, other, claim(t, other, key, request()), "")
		if n, err := s.Purge(t.Context(), storage.Filter{Scope: key.Scope}); n != 1 || err != nil {
			t.Errorf("purge with prefix %q: %d, %v, want 1", prefix, n, err)
		}
		if n, err := other.Purge(t.Context(), storage.Filter{Scope: key.Scope}); n != 1 || err != nil {
			t.Errorf("purge with prefix %q, after that with %q: %d, %v, want 1", looksLike, prefix, n, err)
		}
	}
}

// moveKey begins to move the key's slot to another node of the cluster, and moves
// the key; end moves the rest. (Redis Cluster specification, "Live
// reconfiguration".)
func moveKey(t *testing.T, cluster *redistest.Cluster, name string) (end func()) {
	t.Helper()
	all := cluster.Client(t)
	slot := all.ClusterKeySlot(t.Context(), name).Val()
	owner, err := all.MasterForKey(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	var from, to *goredis.Client
	for _, node := range cluster.Nodes {
		if client := node.Client(t); node.Addr() == owner.Options().Addr {
			from = client
		} else {
			to = client
		}
	}
	id := func(c *goredis.Client) string {
		return c.Do(t.Context(), "CLUSTER", "MYID").String()[len("CLUSTER MYID: "):]
	}
	fromID, toID := id(from), id(to)
	host, port, _ := strings.Cut(to.Options().Addr, ":")
	do(t, to, "CLUSTER", "SETSLOT", slot, "IMPORTING", fromID)
	do(t, from, "CLUSTER", "SETSLOT", slot, "MIGRATING", toID)
	do(t, from, "MIGRATE", host, port, name, 0, patience.Milliseconds())
	return func() {
		do(t, to, "CLUSTER", "SETSLOT", slot, "NODE", toID)
		do(t, from, "CLUSTER", "SETSLOT", slot, "NODE", toID)
	}
}

func TestE2EWaitForReplicas(t *testing.T) {
	master := redistest.StartBeside(t)
	replica := redistest.Replica(t, master)
	client := master.Client(t)
	patient := newStore(t, client, redis.Options{WaitReplicas: 1, WaitTimeout: patience / 2})
	held := claim(t, patient, key, request())

	replica.Pause(t)
	s := newStore(t, client, redis.Options{WaitReplicas: 1, WaitTimeout: 50 * time.Millisecond})
	req, other := request(), storage.Key{Scope: "shipping", ID: "order-2"}
	for range 2 { // also when repeated, without a new write
		if _, err := s.Claim(t.Context(), other, req); !tooFewReplicas(err) || storage.Answered(err) {
			t.Errorf("claim: %v, want %v", err, tooFew)
		}
		if err := s.Complete(t.Context(), held, nil, time.Hour); !tooFewReplicas(err) {
			t.Errorf("complete: %v, want %v", err, tooFew)
		}
	}
	replica.Continue(t)
	await.Until(t, "the replica catches up", func() bool {
		c, err := s.Claim(t.Context(), other, req)
		return err == nil && c.Outcome == storage.Claimed && c.Attempts == 1
	})
	complete(t, patient, held, "")
	got, err := replica.Client(t).Get(t.Context(), prefix(t)+":{shipping/order-1}").Result()
	if !strings.Contains(got, "completed") || err != nil {
		t.Errorf("on the replica: %q, %v, want completed", got, err)
	}
}
