#!/bin/sh
# Runs each fuzz test of the packages for a while: fuzz.sh TIME PACKAGE…
# (go test fuzzes one function of one package at a time.)
set -eu

fuzztime=$1
shift
for package in $(go list "$@"); do
	for name in $(go test -list '^Fuzz' "$package" </dev/null | grep '^Fuzz' || true); do
		go test -run '^$' -fuzz "^$name\$" -fuzztime "$fuzztime" "$package" </dev/null
	done
done
