package cli

import (
	"cmp"
	"runtime/debug"
)

// Build returns version and commit of the program: set by the release build,
// otherwise recorded by the Go tool.
func Build(version, commit string) (ver, rev string) {
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
