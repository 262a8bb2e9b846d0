package main

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set by the release build: -ldflags "-X main.version=v1.2.3".
var version = ""

func versionVerb() verb {
	return verb{
		name:    "version",
		summary: "prints version, commit and Go version",
		example: "cdc-outbox version",
		prepare: func(*flag.FlagSet) action { return printVersion },
	}
}

func printVersion(_ context.Context, p *program) error {
	v, commit := build()
	_, err := fmt.Fprintf(p.stdout, "cdc-outbox %s\ncommit %s\n%s %s/%s\n", v, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// build names what is running, from the release build or what the Go tool
// recorded.
func build() (ver, commit string) {
	ver, commit = version, "unknown"
	info, ok := debug.ReadBuildInfo()
	if ok && ver == "" {
		ver = info.Main.Version
	}
	if ver == "" {
		ver = "(devel)"
	}
	if !ok {
		return ver, commit
	}
	dirty := ""
	for _, setting := range info.Settings {
		switch {
		case setting.Key == "vcs.revision":
			commit = setting.Value
		case setting.Key == "vcs.modified" && setting.Value == "true":
			dirty = " (modified)"
		}
	}
	return ver, commit + dirty
}
