#!/bin/sh
# go mod tidy for each module of the workspace: tidy.sh [VERSION | check | update].
# VERSION is the one at which they require each other; by default it stays. check
# changes nothing, and fails where something would. update takes the newest versions of
# all else that they require, but none that needs a newer Go than they do.
#
# go mod tidy and go get know nothing of workspaces, and that version is not published
# yet (which is why Dependabot cannot do this).
# So it works on a copy of each go.mod in which the others are replaced by their
# directories. No replacement stays behind: go install refuses a module with one.
set -eu
cd "$(dirname "$0")/.."

version=$(sed -n 's|.*/internal/base \(v[^ ]*\) => .*|\1|p' go.work)
check=false
update=false
case ${1-} in
'') ;;
check) check=true ;;
update) update=true ;;
*)
	version=$1
	sed "s| v[^ ]* => \./| $version => ./|" go.work >go.work.new
	mv go.work.new go.work
	chart=deploy/helm/cdc-outbox/Chart.yaml
	sed "s|^version: [^ ]*|version: ${version#v}|; s|^appVersion: [^ ]*|appVersion: $version|" $chart >Chart.new
	mv Chart.new $chart
	;;
esac

# newest FILE raises what the go.mod FILE of this directory's module requires. One
# requirement at a time: one that cannot be raised keeps back no other.
newest() {
	go=$(GOWORK=off go list -m -modfile="$1" -f '{{.GoVersion}}')
	for path in $(GOWORK=off go list -m -mod=mod -modfile="$1" -f '{{if not (or .Main .Indirect)}}{{.Path}}{{end}}' all | grep -v '^github.com/cdc-outbox/'); do
		GOWORK=off go get -modfile="$1" "$path@upgrade" "go@$go" || echo "$path stays" >&2
	done
}

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
		if $update; then (cd "$dir" && newest "$copy/go.mod"); fi
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
if $update; then # outside of the workspace, with replacements of its own
	for outside in examples/clients deploy/helm; do
		(cd $outside && newest go.mod && GOWORK=off go mod tidy)
	done
fi
if $check && [ -n "$untidy" ]; then
	echo "not tidy, make tidy mends it:$untidy" >&2
	exit 1
fi
