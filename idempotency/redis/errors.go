package redis

import (
	"errors"
	"fmt"

	goredis "github.com/redis/go-redis/v9"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// errTooFewReplicas: the master did as asked, but fewer than WaitReplicas had
// the write within WaitTimeout. Everything written stays; the call may be
// repeated.
var errTooFewReplicas = errors.New("too few replicas have the write")

const needsRights = "the user needs the ACL rules in the documentation of package idempotency/redis"

const needsScripts = "use Redis 7 or later, or Valkey: an older one, and emulators such as miniredis and fakeredis, " +
	"lack flags of scripts or Lua's library struct; in tests, take memory.New for the store"

// hints tell an operator the remedy for an error of the server, by how it
// begins.
var hints = []struct{ prefix, hint string }{
	{"OOM", "the server is at maxmemory: give it more, purge, or shorten the retention"},
	{"READONLY", "the server is a replica, or was demoted: let the client follow the master (Sentinel's FailoverOptions, ClusterOptions)"},
	{"LOADING", "the server is reading its data after a start: wait"},
	{"MASTERDOWN", "the server is a replica that lost its master: let the client follow the master"},
	{"CLUSTERDOWN", "not all hash slots are served: see CLUSTER INFO on each node"},
	{"TRYAGAIN", "hash slots are being moved: try again"},
	{"MOVED", "the server is part of a Redis Cluster: use redis.NewClusterClient; if you do, see CLUSTER SLOTS on each node"},
	{"ASK", "hash slots are being moved: try again"},
	{"MISCONF", "the server cannot write to its disk: see its log"},
	{"NOREPLICAS", "fewer replicas are connected than min-replicas-to-write"},
	{"BUSY", "a script runs too long on the server: see SCRIPT KILL"},
	{"WRONGTYPE", "the key belongs to something else: choose another Prefix"},
	{"NOAUTH", "give the client a password"},
	{"WRONGPASS", "give the client the right user name and password"},
	{"NOPERM", needsRights},
	{"The user executing the script can't run", needsRights},
	{"ACL failure in script", needsRights},
	{"Error compiling script", needsScripts},
	{"unknown command", "the server has a command under another name, or not at all (rename-command): undo that for EVALSHA, EVAL and WAIT"},
}

// failed wraps an error other than an answer about the key, and adds the remedy.
func failed(verb string, key storage.Key, err error) error {
	return fmt.Errorf("%s %s: %w", verb, key, explain(err))
}

// explain adds the remedy, where known.
func explain(err error) error {
	for _, h := range hints {
		if goredis.HasErrorPrefix(err, h.prefix) {
			return fmt.Errorf("%w (%s)", err, h.hint)
		}
	}
	return err
}
