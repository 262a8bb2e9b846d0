#!/bin/sh
# Runs go test with the given arguments and prints one line per package, the
# output of what failed, and at the end: N passed, N failed, N skipped.
# GOTESTSUM is the command to run gotestsum with.
set -eu

mkdir -p .cache
events=.cache/test-events.json
: >"$events" # those of another run do not count
status=0
$GOTESTSUM --format standard-quiet --hide-summary output,skipped --jsonfile "$events" -- "$@" </dev/null || status=$?

# Counted are tests and subtests. A package that fails without a failing test
# (it does not build, leaks a goroutine, times out) counts as one failure.
awk '
	function field(name) {
		return match($0, "\"" name "\":\"[^\"]*\"") ? substr($0, RSTART + length(name) + 4, RLENGTH - length(name) - 5) : ""
	}
	{
		action = field("Action"); package = field("Package"); test = field("Test")
		if (action == "fail" && test != "") broken[package] = 1
		if (action == "fail" && test == "" && !broken[package]) action = "fail"
		else if (test == "") next
		n[action]++
	}
	END { printf "%d passed, %d failed, %d skipped\n", n["pass"], n["fail"], n["skip"] }
' "$events" | tee .cache/test-summary
exit "$status"
