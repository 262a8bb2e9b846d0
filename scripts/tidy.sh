#!/bin/sh
# go mod tidy for each module of the workspace: tidy.sh [VERSION | check]. VERSION
# is the one at which they require each other; by default it stays. check changes
# nothing, and fails where something would.
#
# go mod tidy knows nothing of workspaces, and that version is not published yet.
# So it works on a copy of each go.mod in which the others are replaced by their
# directories. No replacement stays behind: go install refuses a module with one.
set -eu
cd "$(dirname "$0")/.."

version=$(sed -n 's|.*/internal/base \(v[^ ]*\) => .*|\1|p' go.work)
check=false
case ${1-} in
'') ;;
check) check=true ;;
*)
	version=$1
	sed "s| v[^ ]* => \./| $version => ./|" go.work >go.work.new
	mv go.work.new go.work
	;;
esac
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
untidy=''
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
	for file in go.mod go.sum; do
		present="$dir/$file"
		[ -e "$present" ] || present=/dev/null
		if ! diff -u "$present" "$copy/$file"; then
			untidy="$untidy $path"
			$check || cp "$copy/$file" "$dir/$file"
		fi
	done
done
if $check && [ -n "$untidy" ]; then
	echo "not tidy, make tidy mends it:$untidy" >&2
	exit 1
fi
