#!/bin/sh
# Debezium's PostgreSQL connector on Kafka Connect standalone, from Maven
# Central's jars.
#
#   debezium.sh fetch                     downloads both once; prints their names and versions
#   debezium.sh run WORKER [CONNECTOR…]   runs a worker with the properties file WORKER, and the
#                                         connectors of the files, until SIGTERM; the properties
#                                         need no plugin.path
#   debezium.sh converters                downloads Apicurio's converters once; prints a directory for
#                                         CONNECT_PLUGINS, more of a worker's plugin.path
#   debezium.sh classpath                 the same for a class path with Kafka's client, too
#   debezium.sh route PROGRAM REQUEST     runs the Java PROGRAM, one source file, with both on its
#                                         class path
#
# CONNECT_JVM are the options of the worker's JVM: those by default are what
# Kafka's own connect-standalone.sh sets.
#
# Needs Java 17 and, for fetch and converters, Maven.
set -eu

connect=4.3.1 # what Debezium is built with
debezium=3.7.0.Final
apicurio=2.6.13.Final # as in registry.sh
cache=${XDG_CACHE_HOME:-$HOME/.cache}/cdc-outbox
here=$(cd "$(dirname "$0")" && pwd)
. "$here/jars.sh"

# A plugin is a directory of jars in one of Connect's plugin.path.
plugins=$cache/debezium-$debezium

fetch() {
	fetch_jars "Kafka Connect $connect" "$cache/connect-$connect" \
		--file "$here/connect-pom.xml" -Dconnect.version="$connect" >/dev/null
	fetch_jars "Debezium $debezium" "$plugins/jars" \
		--file "$here/debezium-pom.xml" -Ddebezium.version="$debezium" >/dev/null
	echo "Debezium $debezium on Kafka Connect $connect"
}

converters() {
	fetch_jars "Apicurio's converters $apicurio" "$cache/converters-$apicurio/jars" \
		--file "$here/converters-pom.xml" -Dconverters.version="$apicurio" >/dev/null
	echo "$cache/converters-$apicurio"
}

classpath() {
	fetch >/dev/null
	echo "$cache/connect-$connect/*:$(converters)/jars/*"
}

run() {
	need java "Debian: apt install openjdk-17-jre-headless"
	fetch >/dev/null
	echo "plugin.path=$plugins${CONNECT_PLUGINS:+,$CONNECT_PLUGINS}" >>"$1"
	# shellcheck disable=SC2086 # they are several
	exec java ${CONNECT_JVM:--Xms256M -Xmx2G -server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 \
		-XX:InitiatingHeapOccupancyPercent=35 -XX:+ExplicitGCInvokesConcurrent -Djava.awt.headless=true} \
		-Dlog4j2.configurationFile="$here/kafka-log4j2.yaml" \
		-cp "$cache/connect-$connect/*" org.apache.kafka.connect.cli.ConnectStandalone "$@"
}

route() {
	need javac "Debian: apt install openjdk-17-jdk-headless"
	fetch >/dev/null
	exec java -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile="$here/kafka-log4j2.yaml" \
		-cp "$cache/connect-$connect/*:$plugins/jars/*" "$@"
}

case "${1:-}" in
fetch) fetch ;;
converters) converters ;;
classpath) classpath ;;
run)
	shift
	run "$@"
	;;
route)
	shift
	route "$@"
	;;
*)
	sed -n '2,20s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
