#!/bin/sh
# A real, single-node Apache Kafka in KRaft mode, from Maven Central's jars.
#
#   kafka.sh fetch                            downloads it once; prints the directory of the jars
#   kafka.sh run DIR PORT PORT2 [KEY=VALUE…]  runs a broker on 127.0.0.1:PORT until SIGTERM; it keeps
#                                             its data in DIR and has its controller on PORT2;
#                                             KEY=VALUE are broker settings
#
# CDC_OUTBOX_KAFKA_VERSION is the release, where it is not to be the one below.
#
# KAFKA_JVM are the options of the broker's JVM: those by default start it fast.
#
# Needs Java 17 and, for fetch, Maven.
set -eu

version=${CDC_OUTBOX_KAFKA_VERSION:-4.4.0}
cache=${XDG_CACHE_HOME:-$HOME/.cache}/cdc-outbox
jars=$cache/kafka-$version
classes=$jars.jsa
fast="-Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
here=$(cd "$(dirname "$0")" && pwd)
. "$here/jars.sh"

fetch() {
	need java "Debian: apt install openjdk-17-jre-headless"
	fetch_jars "Apache Kafka $version" "$jars" --file "$here/kafka-pom.xml" -Dkafka.version="$version"
	[ -f "$classes" ] || share >&2
}

# share runs a broker for a while and has the JVM keep the classes that it loaded: all
# others start with half of the processor time.
share() (
	echo "preparing Apache Kafka $version for fast starts: half a minute, once"
	work=$(mktemp -d "$jars-XXXXXX")
	trap 'rm -rf "$work"' EXIT
	trap 'exit 1' HUP INT TERM
	KAFKA_JVM="$fast -XX:ArchiveClassesAtExit=$work/classes" timeout 30 \
		"$here/kafka.sh" broker "$work" $((20000 + $$ % 5000 * 2)) $((20001 + $$ % 5000 * 2)) >"$work/log" 2>&1 || true
	mv "$work/classes" "$classes" || { # another JVM than ours may not be able to
		echo "the JVM shared no classes, so Apache Kafka starts slowly; it said:" && cat "$work/log"
		: >"$classes"
	}
)

java_kafka() {
	main=$1
	shift
	# shellcheck disable=SC2086 # they are several
	exec java ${KAFKA_JVM:-$fast -XX:SharedArchiveFile="$classes"} \
		-Dlog4j2.configurationFile="$here/kafka-log4j2.yaml" -cp "$jars/*" "$main" "$@"
}

run() {
	fetch >/dev/null
	broker "$@"
}

broker() {
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
broker) # run, without fetch
	shift
	broker "$@"
	;;
*)
	sed -n '2,12s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
