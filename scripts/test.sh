#!/bin/sh
# Runs go test with the given arguments: for the packages $PACKAGES, with the race
# detector where RACE is -race, then for those of $PLAIN, if any, without. It prints one
# line per package, the output of what failed and, at the end, the summary
# (summary.awk): the count, what the tests ran against, and what was skipped and why.
# GOTESTSUM is the command to run gotestsum with.
#
# RETRIES is how often a test that fails runs again; 0 by default. A test that passes
# then is flaky: the summary names it. After a data race, nothing runs again.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
mkdir -p .cache
status=0
# Events of another run do not count.
rm -f .cache/test-events-*.json

# run NAME PACKAGES ARGUMENTS…
run() {
	name=$1 packages=$2
	shift 2
	$GOTESTSUM --format standard-quiet --hide-summary skipped --jsonfile ".cache/test-events-$name.json" \
		--rerun-fails="${RETRIES:-0}" --rerun-fails-run-root-test --rerun-fails-abort-on-data-race --packages="$packages" -- "$@" </dev/null || status=$?
}

# shellcheck disable=SC2086 # empty is no argument
run packages "$PACKAGES" ${RACE:-} "$@"
[ -z "${PLAIN:-}" ] || run plain "$PLAIN" "$@"

awk -f "$here/summary.awk" .cache/test-events-*.json >.cache/test-summary || status=1
cat .cache/test-summary
exit "$status"
