#!/bin/sh
# Proposes what make update has changed as a pull request, or renews the one that is
# open. It runs in a workflow of GitHub, which starts no other for such a pull request:
# closing and opening it does.
set -eu
cd "$(dirname "$0")/.."

git add --all
if git diff --cached --quiet; then
	echo "nothing to propose"
	exit
fi
branch=dependencies
title='Newest versions of the modules that ours require'
git switch --quiet --force-create "$branch"
git -c user.name='github-actions[bot]' -c user.email='41898282+github-actions[bot]@users.noreply.github.com' \
	commit --quiet --message "$title"
git push --quiet --force origin "$branch"
if [ "$(gh pr list --head "$branch" --state open --json number --jq length)" = 0 ]; then
	gh pr create --head "$branch" --title "$title" --body 'By `make update`. `make check` has passed. Close and open this pull request to run all tests.'
fi
