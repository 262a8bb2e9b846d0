#!/bin/sh
# S3Proxy, a server with Amazon's S3 protocol, from Maven Central's jars.
#
#   s3proxy.sh fetch                      downloads it once; prints the directory of the jars
#   s3proxy.sh run PORT DIR USER SECRET   runs it on 127.0.0.1:PORT until SIGTERM: a bucket is a
#                                         directory in DIR, and requests are signed (version 4)
#
# Needs Java 17 and, for fetch, Maven.
set -eu

version=2.6.0
cache=${XDG_CACHE_HOME:-$HOME/.cache}/cdc-outbox
jars=$cache/s3proxy-$version
here=$(cd "$(dirname "$0")" && pwd)
. "$here/jars.sh"

fetch() {
	need java "Debian: apt install openjdk-17-jre-headless"
	fetch_jars "S3Proxy $version" "$jars" --file "$here/s3proxy-pom.xml" -Ds3proxy.version="$version"
}

run() {
	fetch >/dev/null
	properties=$2/s3proxy.properties
	mkdir -p "$2/buckets"
	cat >"$properties" <<-END
		s3proxy.endpoint=http://127.0.0.1:$1
		s3proxy.authorization=aws-v4
		s3proxy.identity=$3
		s3proxy.credential=$4
		s3proxy.v4-max-non-chunked-request-size=134217728
		jclouds.provider=filesystem-nio2
		jclouds.identity=$3
		jclouds.credential=$4
		jclouds.filesystem.basedir=$2/buckets
	END
	exec java -Xmx384m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$jars/*" \
		org.gaul.s3proxy.Main --properties "$properties"
}

case "${1:-}" in
fetch) fetch ;;
run)
	shift
	run "$@"
	;;
*)
	sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
