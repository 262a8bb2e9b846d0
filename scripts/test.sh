#!/bin/sh
# Runs go test for the packages $PACKAGES with the given arguments. It prints one
# line per package, the output of what failed and, at the end, the count:
# N passed, N failed, N skipped. GOTESTSUM is the command to run gotestsum with.
#
# RETRIES is how often a test that fails runs again; 0 by default. One that passes
# then is flaky: the count names it. But what internal/checker has found once (lost,
# reordered, ...) no other run undoes: then the test counts as failed.
set -eu

mkdir -p .cache
events=.cache/test-events.json
: >"$events" # those of another run do not count
status=0
$GOTESTSUM --format standard-quiet --hide-summary skipped --jsonfile "$events" \
	--rerun-fails="${RETRIES:-0}" --rerun-fails-run-root-test --packages="$PACKAGES" -- "$@" </dev/null || status=$?

# Counted are tests and subtests, by their last run. A package that fails without a
# failing test (it does not build, leaks a goroutine, times out) counts as one
# failure.
awk '
	function field(name) {
		return match($0, "\"" name "\":\"[^\"]*\"") ? substr($0, RSTART + length(name) + 4, RLENGTH - length(name) - 5) : ""
	}
	{
		action = field("Action"); package = field("Package"); test = field("Test")
		if (action == "output" && test != "" && /_test\.go:[0-9]+: (lost|torn|ghost|altered|misrouted|misplaced|reordered|premature): /) wrong[package " " test] = 1
		if (action != "pass" && action != "fail" && action != "skip") next
		name = package " " test
		if (action == "fail") failed[name] = 1
		if (action == "fail" && test != "") broken[package] = 1
		last[name] = action
	}
	END {
		for (name in last) {
			split(name, part, " ")
			whole = part[2] == ""
			if (whole && (last[name] != "fail" || broken[part[1]])) continue
			flaky = !whole && failed[name] && last[name] == "pass"
			if (flaky && wrong[name]) {
				last[name] = "fail"
				status = 1
			}
			if (flaky) named = named (wrong[name] ? "\nwrong at first: " : "\nflaky: ") name
			n[last[name]]++
		}
		printf "%d passed, %d failed, %d skipped%s\n", n["pass"], n["fail"], n["skip"], named
		exit status
	}
' "$events" >.cache/test-summary || status=1
cat .cache/test-summary
exit "$status"
