package redis

import (
	"embed"
	"slices"

	goredis "github.com/redis/go-redis/v9"
)

//go:embed lua
var sources embed.FS

// The first line of a script declares its rights. (Redis documentation,
// "Scripting with Lua", "Eval scripts with flags".) A script with a first line
// but without no-writes is refused as a whole by a replica, and while the server
// misses required replicas or the disk.
const (
	// refusedWhenFull: nothing new is begun on a server at maxmemory.
	refusedWhenFull = "#!lua\n"
	// evenWhenFull: everything begun is settled, and everything kept can be seen
	// and purged, also on such a server.
	evenWhenFull = "#!lua flags=allow-oom\n"
)

// Each operation is a single script, and so atomic. Redis runs scripts by their
// hash; go-redis sends the text when unknown to the server (yet, or any more).
// Each is put together from parts, which share variables and hardly any
// functions: Lua sets functions up anew in each call, for 1 to 2 µs.
var (
	claimScript    = script(refusedWhenFull, "first", "record", "claim", "save")
	extendScript   = script(evenWhenFull, "get", "record", "extend", "save")
	completeScript = script(evenWhenFull, "get", "record", "complete", "save")
	failScript     = script(evenWhenFull, "get", "record", "fail", "save")
	inspectScript  = script(evenWhenFull, "get", "record", "reply", "inspect")
	releaseScript  = script(evenWhenFull, "get", "record", "reply", "release", "save")
	purgeScript    = script(evenWhenFull, "get", "record", "purge")
)

// script puts the parts of a script together.
func script(flags string, names ...string) *goredis.Script {
	text := flags
	for _, name := range slices.Concat([]string{"begin"}, names, []string{"end"}) {
		text += source(name)
	}
	return goredis.NewScript(text)
}

func source(name string) string {
	text, err := sources.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) //nolint:forbidigo // the files are part of the program
	}
	return string(text)
}
