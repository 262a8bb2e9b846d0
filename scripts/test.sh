#!/bin/sh
# Runs go test for the packages $PACKAGES with the given arguments. It prints one
# line per package, the output of what failed and, at the end, the summary
# (summary.awk): the count, what the tests ran against, and what was skipped and why.
# GOTESTSUM is the command to run gotestsum with.
#
# RETRIES is how often a test that fails runs again; 0 by default. A test that passes
# then is flaky: the summary names it. After a data race, nothing runs again.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
mkdir -p .cache
events=.cache/test-events.json
: >"$events" # those of another run do not count
status=0
$GOTESTSUM --format standard-quiet --hide-summary skipped --jsonfile "$events" \
	--rerun-fails="${RETRIES:-0}" --rerun-fails-run-root-test --rerun-fails-abort-on-data-race --packages="$PACKAGES" -- "$@" </dev/null || status=$?

awk -f "$here/summary.awk" "$events" >.cache/test-summary || status=1
cat .cache/test-summary
exit "$status"
