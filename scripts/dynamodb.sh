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
. "$here/jars.sh"

# SQLite's native library is not published for Linux on other processors.
need_platform() {
	case "$(uname -s) $(uname -m)" in
	"Linux x86_64" | Darwin*) ;;
	*)
		echo "dynamodb.sh: DynamoDB Local's jars do not run on $(uname -s) $(uname -m) (use Docker)" >&2
		exit 3
		;;
	esac
}

fetch() {
	need java "Debian: apt install openjdk-17-jre-headless"
	need_platform
	fetch_jars "DynamoDB Local $version" "$jars" --file "$here/dynamodb-pom.xml" -Ddynamodb.version="$version"
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
