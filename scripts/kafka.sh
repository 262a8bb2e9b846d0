#!/bin/sh
# A real, single-node Apache Kafka in KRaft mode, from Maven Central's jars.
#
#   kafka.sh fetch                            downloads it once; prints the directory of the jars
#   kafka.sh run DIR PORT PORT2 [KEY=VALUE…]  runs a broker on 127.0.0.1:PORT until SIGTERM; it keeps
#                                             its data in DIR and has its controller on PORT2;
#                                             KEY=VALUE are broker settings
#
# Needs Java 17 and, for fetch, Maven.
set -eu

version=4.1.1
cache=${XDG_CACHE_HOME:-$HOME/.cache}/cdc-outbox
jars=$cache/kafka-$version
here=$(cd "$(dirname "$0")" && pwd)

need() {
	command -v "$1" >/dev/null || {
		echo "kafka.sh: $1 is not installed ($2)" >&2
		exit 1
	}
}

# Downloads into a directory beside the final one, so that jars are there whole
# or not at all.
fetch() {
	if [ ! -d "$jars" ]; then
		need mvn "Debian: apt install maven"
		echo "downloading Apache Kafka $version from Maven Central into $jars" >&2
		mkdir -p "$cache"
		work=$(mktemp -d "$cache/kafka-XXXXXX")
		trap 'rm -rf "$work"' EXIT
		trap 'exit 1' HUP INT TERM # which alone would not run the above
		again=2 # a repository may be out of reach for a moment
		until mvn --batch-mode --quiet --file "$here/kafka-pom.xml" -Dkafka.version="$version" \
			dependency:copy-dependencies -DoutputDirectory="$work/jars" </dev/null >&2; do
			[ "$again" -gt 0 ] || exit 1
			again=$((again - 1))
			sleep 5
		done
		mv "$work/jars" "$jars" 2>/dev/null || [ -d "$jars" ] # or another process was faster
	fi
	echo "$jars"
}

java_kafka() {
	main=$1
	shift
	exec java -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
		-Dlog4j2.configurationFile="$here/kafka-log4j2.yaml" -cp "$jars/*" "$main" "$@"
}

run() {
	need java "Debian: apt install openjdk-17-jre-headless"
	fetch >/dev/null
	dir=$1 port=$2 controller=$3
	shift 3
	mkdir -p "$dir"
	cat >"$dir/server.properties" <<-PROPERTIES
		process.roles=broker,controller
		node.id=1
		controller.quorum.voters=1@127.0.0.1:$controller
		listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$controller
		advertised.listeners=PLAINTEXT://127.0.0.1:$port
		controller.listener.names=CONTROLLER
		log.dirs=$dir/data
		auto.create.topics.enable=false
		offsets.topic.replication.factor=1
		offsets.topic.num.partitions=1
		transaction.state.log.replication.factor=1
		transaction.state.log.min.isr=1
		transaction.state.log.num.partitions=1
		group.initial.rebalance.delay.ms=0
	PROPERTIES
	for setting in "$@"; do
		echo "$setting" >>"$dir/server.properties"
	done
	if [ ! -f "$dir/data/meta.properties" ]; then
		# The identifier is any 16 bytes in URL-safe base64.
		(java_kafka kafka.tools.StorageTool format --cluster-id "Y2RjLW91dGJveC10ZXN0cw" --config "$dir/server.properties" >/dev/null)
	fi
	java_kafka kafka.Kafka "$dir/server.properties"
}

case "${1:-}" in
fetch) fetch ;;
run)
	shift
	run "$@"
	;;
*)
	sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
