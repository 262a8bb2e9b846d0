package redis

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	goredis "github.com/redis/go-redis/v9"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// minVersion is the first major version of Redis with flags for scripts.
const minVersion = 7

// Check implements storage.Checker for the server, or for each master of a
// cluster. Settings hidden by a managed service are a separate Problem.
func (s *Store) Check(ctx context.Context) ([]storage.Problem, error) {
	var (
		mu       sync.Mutex // the cluster client calls look concurrently
		problems []storage.Problem
	)
	look := func(ctx context.Context, node *goredis.Client) error {
		found, err := inspectServer(ctx, node)
		mu.Lock()
		defer mu.Unlock()
		problems = append(problems, found...)
		return err
	}
	var err error
	switch client := s.client.(type) {
	case *goredis.ClusterClient:
		err = client.ForEachMaster(ctx, look)
		problems = append(problems, deadlines(client.Options().ContextTimeoutEnabled)...)
	case *goredis.Client:
		if err = look(ctx, client); err == nil {
			problems = append(problems, routing(ctx, client)...)
		}
		problems = append(problems, deadlines(client.Options().ContextTimeoutEnabled)...)
	default:
		err = fmt.Errorf("a client of type %T cannot be asked for its servers", s.client)
	}
	if err != nil {
		return problems, fmt.Errorf("check Redis: %w", explain(err))
	}
	return problems, nil
}

// deadlines finds a client deaf to deadlines.
func deadlines(heeded bool) []storage.Problem {
	if heeded {
		return nil
	}
	return []storage.Problem{{Text: "the client is without ContextTimeoutEnabled: each call of a server that is silent takes ReadTimeout, " +
		"however short the time it is given, also with FailOpen",
		Remedy: "set ContextTimeoutEnabled in the client's options"}}
}

// routing finds a client unable to follow the keys.
func routing(ctx context.Context, client *goredis.Client) []storage.Problem {
	info, err := readInfo(ctx, client, "cluster")
	if err != nil || info["cluster_enabled"] != "1" {
		return nil
	}
	return []storage.Problem{{Text: client.Options().Addr + ": the server is part of a Redis Cluster, the client is for one server",
		Remedy: "use redis.NewClusterClient"}}
}

// inspectServer finds the problems of a single server. INFO tells most of them,
// also where CONFIG is refused.
func inspectServer(ctx context.Context, node *goredis.Client) ([]storage.Problem, error) {
	v := view{server: node.Options().Addr, config: make(map[string]string)}
	if err := v.scripts(ctx, node); err != nil || len(v.problems) > 0 {
		return v.problems, err
	}
	var err error
	if v.info, err = readInfo(ctx, node); err != nil {
		if !refused(err) {
			return nil, err
		}
		v.add("INFO is refused, so that nothing else can be checked: "+err.Error(),
			"allow it to the user, undo its rename-command, or look after persistence, eviction and replicas yourself")
		return v.problems, nil
	}
	if v.server == sentinels {
		v.server = "the master that Sentinel names, with port " + v.info["tcp_port"]
	}
	for _, name := range []string{"save", "appendfsync"} {
		values, err := node.ConfigGet(ctx, name).Result()
		if err != nil {
			if !refused(err) {
				return nil, err
			}
			v.refused = true
			break
		}
		v.config[name] = values[name]
	}
	v.version()
	v.eviction()
	v.persistence()
	v.replication()
	return v.problems, nil
}

// sentinels is go-redis's address of a server behind Sentinel.
const sentinels = "FailoverClient"

// refused tells an answer of the server.
func refused(err error) bool {
	_, answer := err.(goredis.Error) //nolint:errorlint // go-redis returns the error unwrapped
	return answer
}

// probe is a script with everything our scripts need from a server.
var probe = goredis.NewScript("#!lua flags=no-writes\nreturn struct.unpack('<c2', struct.pack('<c2', 'ok'))")

// scripts finds a server unable to run our scripts: an emulator, or a server with
// renamed commands.
func (v *view) scripts(ctx context.Context, node *goredis.Client) error {
	err := probe.Run(ctx, node, nil).Err()
	switch {
	case err == nil:
	case !refused(err):
		return err
	case goredis.HasErrorPrefix(err, "unknown command"):
		v.fatal("scripts cannot be run: "+err.Error(), "undo rename-command for EVALSHA and EVAL: a client of Redis knows no other names")
	case goredis.HasErrorPrefix(err, "NOPERM"):
		v.fatal("scripts cannot be run: "+err.Error(), needsRights)
	case goredis.HasErrorPrefix(err, "LOADING"), goredis.HasErrorPrefix(err, "BUSY"), goredis.HasErrorPrefix(err, "MASTERDOWN"), goredis.HasErrorPrefix(err, "NOAUTH"):
		return err
	default:
		v.fatal("scripts cannot be run: "+err.Error(), needsScripts)
	}
	return nil
}

// view is a server's answers about itself, and its faults.
type view struct {
	server       string
	info, config map[string]string
	refused      bool // CONFIG is
	problems     []storage.Problem
}

func (v *view) add(text, remedy string) {
	v.problems = append(v.problems, storage.Problem{Text: v.server + ": " + text, Remedy: remedy})
}

func (v *view) fatal(text, remedy string) {
	v.problems = append(v.problems, storage.Problem{Fatal: true, Text: v.server + ": " + text, Remedy: remedy})
}

func (v *view) version() {
	version := v.info["redis_version"] // Valkey gives the compatible version of Redis
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); err == nil && n < minVersion {
		v.add("version "+version+" is older than 7: scripts with flags are refused", "upgrade to Redis 7 or later, or Valkey")
	}
}

func (v *view) eviction() {
	policy := v.info["maxmemory_policy"]
	if policy == "noeviction" {
		return
	}
	text := "maxmemory-policy is " + policy + ": at maxmemory keys vanish, and their messages are run again"
	if n := v.info["evicted_keys"]; n != "" && n != "0" {
		text += "; " + n + " keys have been evicted since the start"
	}
	v.add(text, "set maxmemory-policy to noeviction: the server then refuses new claims instead, and consumers wait")
}

func (v *view) persistence() {
	switch {
	case v.info["aof_enabled"] == "1" && v.config["appendfsync"] == "no":
		v.add("appendfsync is no: a crash of the machine forgets up to half a minute",
			"set appendfsync to everysec, or to always")
	case v.info["aof_enabled"] == "1":
	case v.refused:
		v.add("appendonly is off, and whether snapshots are saved cannot be checked, as CONFIG is refused: a restart may forget all keys",
			"look up the service's persistence settings")
	case v.config["save"] == "":
		v.add("nothing is kept on disk (appendonly no, save \"\"): a restart forgets all keys, and their messages are run again",
			"set appendonly to yes")
	default:
		v.add("only snapshots are kept on disk (appendonly no): a crash forgets what came after the last",
			"set appendonly to yes")
	}
}

func (v *view) replication() {
	if v.info["role"] != "master" {
		v.add("the server is a replica: it refuses scripts", "connect to the master (Sentinel: redis.NewFailoverClient)")
		return
	}
	// The field is there if, and only if, min-replicas-to-write is set.
	_, guarded := v.info["min_slaves_good_slaves"]
	if n := v.info["connected_slaves"]; n != "0" && !guarded {
		v.add("min-replicas-to-write is 0, with "+n+" replicas: a master that is cut off goes on granting claims that a failover then forgets",
			"set min-replicas-to-write to 1 or more and min-replicas-max-lag to a few seconds; see also Options.WaitReplicas")
	}
}

// readInfo returns the fields of INFO.
func readInfo(ctx context.Context, node *goredis.Client, section ...string) (map[string]string, error) {
	text, err := node.Info(ctx, section...).Result()
	if err != nil {
		return nil, err
	}
	info := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info, nil
}
