#!/bin/sh
# go mod tidy for each module of the workspace: tidy.sh [VERSION]. VERSION is the
# one at which they require each other; by default it stays.
#
# go mod tidy knows nothing of workspaces, and that version is not published yet.
# So it works on a copy of each go.mod in which the others are replaced by their
# directories. No replacement stays behind: go install refuses a module with one.
set -eu
cd "$(dirname "$0")/.."

version=${1:-$(sed -n 's|.*/internal/base \(v[^ ]*\) => .*|\1|p' go.work)}
sed -i "s| v[^ ]* => \./| $version => ./|" go.work
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
modules=$(go list -m -f '{{.Path}}={{.Dir}}')
for module in $modules; do
	path=${module%%=*} dir=${module#*=}
	require='' replace='' drop=''
	for other in $modules; do
		[ "$other" = "$module" ] && continue
		require="$require -require=${other%%=*}@$version"
		replace="$replace -replace=$other"
		drop="$drop -dropreplace=${other%%=*}"
	done
	cp "$dir/go.mod" "$copy/go.mod"
	cp "$dir/go.sum" "$copy/go.sum" 2>/dev/null || : >"$copy/go.sum"
	# shellcheck disable=SC2086 # several words each, and no spaces in paths
	{
		go mod edit $require $replace "$copy/go.mod"
		(cd "$dir" && GOWORK=off go mod tidy -modfile="$copy/go.mod")
		go mod edit $drop "$copy/go.mod"
	}
	echo "$path"
	cmp -s "$copy/go.mod" "$dir/go.mod" || cp "$copy/go.mod" "$dir/go.mod"
	cmp -s "$copy/go.sum" "$dir/go.sum" || cp "$copy/go.sum" "$dir/go.sum"
done
