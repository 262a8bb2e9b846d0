package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
)

// The release build sets these: -ldflags "-X main.version=v1.2.3 -X main.commit=…".
var version, commit string

func versionVerb() verb {
	return verb{
		name:    "version",
		summary: "prints version, commit and Go version",
		example: "cdc-outbox version",
		prepare: func(*flag.FlagSet) action { return printVersion },
	}
}

func printVersion(_ context.Context, p *program) error {
	ver, rev := build()
	_, err := fmt.Fprintf(p.stdout, "cdc-outbox %s\ncommit %s\n%s %s/%s\n", ver, rev, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// build names what is running: what the release build set, otherwise what the
// Go tool recorded.
func build() (ver, rev string) {
	ver, rev = version, commit
	if info, ok := debug.ReadBuildInfo(); ok {
		if ver == "" {
			ver = info.Main.Version
		}
		if rev == "" {
			rev = revision(info)
		}
	}
	return cmp.Or(ver, "(devel)"), cmp.Or(rev, "unknown")
}

func revision(info *debug.BuildInfo) string {
	rev, modified := "", ""
	for _, setting := range info.Settings {
		switch {
		case setting.Key == "vcs.revision":
			rev = setting.Value
		case setting.Key == "vcs.modified" && setting.Value == "true":
			modified = " (modified)"
		}
	}
	if rev == "" {
		return ""
	}
	return rev + modified
}
