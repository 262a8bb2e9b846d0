#!/bin/sh
# Runs each fuzz test of the packages for a while: fuzz.sh TIME PACKAGE…
# (go test fuzzes one function of one package at a time.)
set -eu

fuzztime=$1
shift
packages=$(go list "$@") # not within for: its failure would go unnoticed
for package in $packages; do
	names=$(go test -list '^Fuzz' "$package" </dev/null)
	for name in $(echo "$names" | grep '^Fuzz' || true); do
		go test -run '^$' -fuzz "^$name\$" -fuzztime "$fuzztime" "$package" </dev/null
	done
done
