package redis

import (
	"embed"

	goredis "github.com/redis/go-redis/v9"
)

//go:embed lua
var sources embed.FS

// The first line of a script declares what it may do. (Redis documentation,
// "Scripting with Lua", "Eval scripts with flags".) A script that has one and
// does not say no-writes is refused as a whole by a replica, and while replicas
// or the disk that the server insists on are missing.
const (
	// refusedWhenFull: nothing new is begun on a server that is at maxmemory.
	refusedWhenFull = "#!lua\n"
	// evenWhenFull: what was begun is settled, and what is kept can be seen and
	// purged, also on such a server.
	evenWhenFull = "#!lua flags=allow-oom\n"
)

// Each operation is one script, so that it is atomic. Redis runs them by their
// hash; go-redis sends the text when the server does not know it (yet, or any
// more).
var (
	claimScript    = script(refusedWhenFull, "now", "claim_first", "record", "claim")
	extendScript   = script(evenWhenFull, "now", "record", "extend")
	completeScript = script(evenWhenFull, "now", "complete_first", "record", "complete")
	failScript     = script(evenWhenFull, "now", "record", "fail")
	inspectScript  = script(evenWhenFull, "now", "record", "inspect")
	releaseScript  = script(evenWhenFull, "now", "record", "release")
	purgeScript    = script(evenWhenFull, "now", "record", "purge")
)

// script puts the parts of a script together.
func script(flags string, names ...string) *goredis.Script {
	text := flags
	for _, name := range names {
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
