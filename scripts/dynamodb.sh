#!/bin/sh
# DynamoDB Local, Amazon's own stand-in for DynamoDB, from Maven Central's jars.
#
#   dynamodb.sh fetch      downloads it once, unless it cannot run here; prints the directory of the jars
#   dynamodb.sh run PORT   runs it on 127.0.0.1:PORT, with all data in memory, until SIGTERM
#
# Needs Java 17 and, for fetch, Maven.
set -eu

version=2.6.1
cache=${XDG_CACHE_HOME:-$HOME/.cache}/cdc-outbox
jars=$cache/dynamodb-local-$version
here=$(cd "$(dirname "$0")" && pwd)

need() {
	command -v "$1" >/dev/null || {
		echo "dynamodb.sh: $1 is not installed ($2)" >&2
		exit 1
	}
}

# SQLite's native library is not published for Linux on other processors.
need_platform() {
	case "$(uname -s) $(uname -m)" in
	"Linux x86_64" | Darwin*) ;;
	*)
		echo "dynamodb.sh: DynamoDB Local's jars do not run on $(uname -s) $(uname -m) (use Docker)" >&2
		exit 1
		;;
	esac
}

# Downloads into a directory beside the final one, so that jars are there whole
# or not at all.
fetch() {
	need java "Debian: apt install openjdk-17-jre-headless"
	need_platform
	if [ ! -d "$jars" ]; then
		need mvn "Debian: apt install maven"
		echo "downloading DynamoDB Local $version from Maven Central into $jars" >&2
		mkdir -p "$cache"
		work=$(mktemp -d "$cache/dynamodb-XXXXXX")
		trap 'rm -rf "$work"' EXIT
		trap 'exit 1' HUP INT TERM # which alone would not run the above
		again=2 # a repository may be out of reach for a moment
		until mvn --batch-mode --quiet -Dstyle.color=never --file "$here/dynamodb-pom.xml" -Ddynamodb.version="$version" \
			dependency:copy-dependencies -DoutputDirectory="$work/jars" </dev/null >&2; do
			[ "$again" -gt 0 ] || exit 1
			again=$((again - 1))
			sleep 5
		done
		mv "$work/jars" "$jars" 2>/dev/null || [ -d "$jars" ] # or another process was faster
	fi
	echo "$jars"
}

# Listens on every address, as DynamoDB Local has no setting for it.
run() {
	fetch >/dev/null
	exec java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Djava.library.path="$jars" -cp "$jars/*" \
		com.amazonaws.services.dynamodbv2.local.main.ServerRunner -inMemory -disableTelemetry -port "$1"
}

case "${1:-}" in
fetch) fetch ;;
run)
	shift
	run "$@"
	;;
*)
	sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
