#!/bin/sh
# Tags what is checked out as the release that go.work names: one tag for each
# module, all on the same commit, as they require each other. It pushes nothing,
# and says what is left to do. release.sh list only prints the tags.
set -eu
cd "$(dirname "$0")/.."

version=$(sed -n 's|.*/internal/base \(v[^ ]*\) => .*|\1|p' go.work)
tags=$(go list -m | sed -n "s|^github.com/cdc-outbox/cdc-outbox\$|$version|p; s|^github.com/cdc-outbox/cdc-outbox/\(.*\)|\1/$version|p")
if [ "${1-}" = list ]; then
	echo "$tags"
	exit
fi
if [ -n "$(git status --porcelain)" ]; then
	echo "there are changes that are not committed" >&2
	exit 1
fi
scripts/tidy.sh check
for tag in $tags; do
	git tag --annotate --message "cdc-outbox $version" "$tag"
done
echo "Now push them. The connector's is the last: it requires the others, and it starts the"
echo "workflow, which GitHub does not do where more than three tags are pushed at once."
echo git push --atomic origin $(echo "$tags" | grep /)
echo git push origin "$version"
echo "and set the version after that: make tidy VERSION=v…"
