package redis_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/cdc-outbox/cdc-outbox/idempotency/redis"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/base/hook"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/redistest"
)

func TestCheckFinds(t *testing.T) {
	set := redistest.Setting
	for name, test := range map[string]struct {
		settings []redistest.Option
		want     []string // the beginnings of the problems' texts
	}{
		"nothing with an append-only file": {settings: []redistest.Option{set("appendonly", "yes")}},
		"nothing on disk":                  {want: []string{"nothing is kept on disk"}},
		"snapshots only":                   {settings: []redistest.Option{set("save", "3600 1")}, want: []string{"only snapshots"}},
		"a file that is never synced": {
			settings: []redistest.Option{set("appendonly", "yes"), set("appendfsync", "no")},
			want:     []string{"appendfsync is no"},
		},
		"a command of another name": {
			settings: []redistest.Option{set("appendonly", "yes"), set("rename-command EVALSHA", "HASHED")},
			want:     []string{"scripts cannot be run"},
		},
		"no INFO": {
			settings: []redistest.Option{set("appendonly", "yes"), set("rename-command INFO", "TOLD")},
			want:     []string{"INFO is refused"},
		},
		"eviction": {
			settings: []redistest.Option{set("appendonly", "yes"), set("maxmemory-policy", "allkeys-lfu")},
			want:     []string{"maxmemory-policy is allkeys-lfu"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			client := redistest.Start(t, test.settings...).Client(t)
			expect(t, newStore(t, client, redis.Options{}), client.Options().Addr, test.want...)
		})
	}
}

// expect asserts the beginnings of all problems.
func expect(t *testing.T, s *redis.Store, server string, want ...string) {
	t.Helper()
	problems, err := s.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(problems) != len(want) {
		t.Fatalf("Check finds %v, want %q", problems, want)
	}
	for i, p := range problems {
		if !strings.HasPrefix(p.Text, server+": "+want[i]) || p.Remedy == "" {
			t.Errorf("problem %q, want %q of %s with a remedy", p, want[i], server)
		}
		if text := p.String(); !strings.Contains(text, p.Text) || !strings.Contains(text, p.Remedy) {
			t.Errorf("String() = %q", text)
		}
	}
}

func TestCheckSaysWhatItCannotSee(t *testing.T) {
	server := redistest.Start(t)
	do(t, server.Client(t), "ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", "-config")
	client := server.Client(t, func(o *goredis.Options) { o.Username, o.Password = "app", "secret" })
	expect(t, newStore(t, client, redis.Options{}), client.Options().Addr,
		"appendonly is off, and whether snapshots are saved cannot be checked")
}

func TestCheckFindsAClientThatOutlivesItsContexts(t *testing.T) {
	server := redistest.Start(t, redistest.Setting("appendonly", "yes"))
	client := server.Client(t, func(o *goredis.Options) { o.ContextTimeoutEnabled = false })
	problems, err := newStore(t, client, redis.Options{}).Check(t.Context())
	if err != nil || len(problems) != 1 || !strings.Contains(problems[0].Remedy, "ContextTimeoutEnabled") || problems[0].Fatal {
		t.Errorf("%v, %v", problems, err)
	}
}

func TestE2ECheckOfReplica(t *testing.T) {
	master := redistest.StartBeside(t)
	client := redistest.Replica(t, master, redistest.Setting("appendonly", "yes")).Client(t)
	expect(t, newStore(t, client, redis.Options{}), client.Options().Addr, "the server is a replica")
}

func TestE2ECheckOfCluster(t *testing.T) {
	cluster := redistest.StartCluster(t)
	problems, err := newStore(t, cluster.Client(t), redis.Options{}).Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	servers := map[string]bool{}
	for _, p := range problems {
		server, text, _ := strings.Cut(p.Text, ": ")
		if !strings.HasPrefix(text, "nothing is kept on disk") {
			t.Errorf("problem %s", p)
		}
		servers[server] = true
	}
	if len(servers) != len(cluster.Nodes) {
		t.Errorf("problems of %d servers, want %d", len(servers), len(cluster.Nodes))
	}

	single := cluster.Nodes[0].Client(t)
	expect(t, newStore(t, single, redis.Options{}), single.Options().Addr,
		"nothing is kept on disk", "the server is part of a Redis Cluster")
}

func TestCheckOfOldServer(t *testing.T) {
	client := redistest.Start(t, redistest.Setting("appendonly", "yes")).Client(t)
	client.AddHook(posingAs("6.2.14"))
	expect(t, newStore(t, client, redis.Options{}), client.Options().Addr, "version 6.2.14 is older than 7")
}

// posingAs is a client's hook changing the version in INFO.
type posingAs string

func (posingAs) DialHook(next goredis.DialHook) goredis.DialHook { return next }
func (posingAs) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}
func (version posingAs) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		err := next(ctx, cmd)
		if info, ok := cmd.(*goredis.StringCmd); ok && cmd.Name() == "info" {
			info.SetVal(info.Val() + "\r\nredis_version:" + string(version))
		}
		return err
	}
}

func TestCheckOfServerThatIsDown(t *testing.T) {
	server := redistest.Start(t)
	s := newStore(t, server.Client(t), redis.Options{})
	server.Stop(t)
	if problems, err := s.Check(t.Context()); err == nil {
		t.Errorf("Check of a stopped server: %v, want an error", problems)
	}
}

func do(t testing.TB, client *goredis.Client, args ...any) {
	t.Helper()
	if err := client.Do(t.Context(), args...).Err(); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
}

// Evictions are noticed while consumers run.
func TestEvictionsAreNoticed(t *testing.T) {
	client := redistest.Start(t, redistest.Setting("maxmemory-policy", "allkeys-random")).Client(t)
	s := newStore(t, client, redis.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	reports, done := make(chan error, 100), make(chan struct{})
	go func() {
		defer close(done)
		s.Maintain(hook.WithInterval(ctx, time.Millisecond), func(err error) {
			select {
			case reports <- err:
			default:
			}
		})
	}()
	deadline := time.After(patience)
	for n := 0; ; n++ {
		_, _ = s.Claim(ctx, storage.Key{Scope: "shipping", ID: strconv.Itoa(n)}, request()) // the server may be too full
		if n == 100 {
			if err := client.ConfigSet(ctx, "maxmemory", "1mb").Err(); err != nil {
				t.Fatal(err)
			}
		}
		select {
		case err := <-reports:
			if n < 100 || !strings.Contains(err.Error(), "noeviction") {
				t.Error(err)
			}
			cancel()
			<-done
			return
		case <-deadline:
			t.Fatal("no report")
		default:
		}
	}
}
