package redis_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/cdc-outbox/cdc-outbox/idempotency/redis"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/redistest"
)

func TestErrorsOfTheServerSayWhatToDo(t *testing.T) {
	noRetries := func(o *goredis.Options) { o.MaxRetries = -1 }
	for name, test := range map[string]struct {
		client func(t *testing.T) *goredis.Client
		want   []string
	}{
		"a replica": {
			client: func(t *testing.T) *goredis.Client {
				return redistest.Replica(t, redistest.StartBeside(t)).Client(t, noRetries)
			},
			want: []string{"READONLY", "follow the master"},
		},
		"a node of a cluster": {
			client: func(t *testing.T) *goredis.Client {
				cluster := redistest.StartCluster(t)
				owner, err := cluster.Client(t).MasterForKey(t.Context(), "p:{shipping/order-1}")
				if err != nil {
					t.Fatal(err)
				}
				for _, node := range cluster.Nodes {
					if node.Addr() != owner.Options().Addr {
						return node.Client(t, noRetries)
					}
				}
				return nil
			},
			want: []string{"MOVED", "NewClusterClient"},
		},
		"a cluster without slots": {
			client: func(t *testing.T) *goredis.Client {
				node, _ := redistest.StartNode(t)
				return node.Client(t, noRetries)
			},
			want: []string{"CLUSTERDOWN", "CLUSTER INFO"},
		},
		"a user without rights": {
			client: func(t *testing.T) *goredis.Client {
				server := redistest.Start(t)
				do(t, server.Client(t), "ACL", "SETUSER", "app", "on", ">secret", "~*", "+ping")
				return server.Client(t, noRetries, func(o *goredis.Options) { o.Username, o.Password = "app", "secret" })
			},
			want: []string{"NOPERM", "ACL rules"},
		},
		"a user who may run scripts, and not what is in them": {
			client: func(t *testing.T) *goredis.Client {
				server := redistest.Start(t)
				client := server.Client(t)
				claim(t, newStore(t, client, redis.Options{Prefix: "p"}), key, request())
				do(t, client, "ACL", "SETUSER", "app", "on", ">secret", "~*", "+@all", "-get", "-set")
				return server.Client(t, noRetries, func(o *goredis.Options) { o.Username, o.Password = "app", "secret" })
			},
			want: []string{"ACL rules"},
		},
		"no password": {
			client: func(t *testing.T) *goredis.Client {
				return redistest.Start(t, redistest.Setting("requirepass", "secret")).Client(t, noRetries)
			},
			want: []string{"NOAUTH", "password"},
		},
		"somebody else's key": {
			client: func(t *testing.T) *goredis.Client {
				client := redistest.Start(t).Client(t, noRetries)
				do(t, client, "SET", "p:{shipping/order-1}", "x")
				return client
			},
			want: []string{"WRONGTYPE", "Prefix"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t, test.client(t), redis.Options{Prefix: "p"})
			for what, err := range map[string]error{
				"claim":   second(s.Claim(t.Context(), key, request())),
				"inspect": second(s.Inspect(t.Context(), key)),
			} {
				for _, want := range test.want {
					if err == nil || !strings.Contains(err.Error(), want) || storage.Answered(err) {
						t.Errorf("%s: %v, want %s", what, err, want)
					}
				}
			}
		})
	}
}

func second[T any](_ T, err error) error { return err }

// enough makes a user of the server with the rights of the package's documentation,
// in a cluster or not.
func enough(t *testing.T, server *redistest.Server, cluster bool) {
	t.Helper()
	text, err := os.ReadFile("../../../idempotency/redis/doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "// # Rights")
	section, _, _ = strings.Cut(section, "// # ")
	section, inCluster, _ := strings.Cut(section, "in a cluster")
	if cluster {
		section += inCluster
	}
	args := []any{"ACL", "SETUSER", "app", "reset", "on", ">secret", "~" + prefix(t) + ":*"}
	rules := regexp.MustCompile(`\+[a-z]+(\|[a-z]+)?`).FindAllString(section, -1)
	if len(rules) == 0 {
		t.Fatal("the documentation has no rules")
	}
	for _, rule := range rules {
		args = append(args, rule)
	}
	do(t, server.Client(t), args...)
}

func TestRightsThatAreEnough(t *testing.T) {
	server := redistest.StartBeside(t)
	enough(t, server.Server, false)
	client := server.Client(t, func(o *goredis.Options) { o.Username, o.Password = "app", "secret" })
	redistest.Replica(t, server)
	s := newStore(t, client, redis.Options{WaitReplicas: 1, WaitTimeout: patience / 2})
	complete(t, s, claim(t, s, key, request()), "")
	if _, err := s.Inspect(t.Context(), key); err != nil {
		t.Error(err)
	}
	if _, err := s.Purge(t.Context(), storage.Filter{Scope: key.Scope}); err != nil {
		t.Error(err)
	}
	if _, err := s.Release(t.Context(), key); err != nil {
		t.Error(err)
	}
	if _, err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
}
