#!/bin/sh
# A schema registry of another vendor, Apicurio, from Maven Central.
#
#   registry.sh fetch      downloads it once; prints its version
#   registry.sh run PORT   serves 127.0.0.1:PORT until SIGTERM, Confluent's API at /apis/ccompat/v7
#   registry.sh test       runs the tests of package internal/registry with it, its deserializer
#                          for Java, and Confluent's for Python, downloaded once
#
# Needs Java 17; fetch needs Maven, and test Python.
set -eu

version=2.6.13.Final
clients=2.16.1
here=$(cd "$(dirname "$0")" && pwd)
dir=${XDG_CACHE_HOME:-$HOME/.cache}/cdc-outbox/registry
app=$dir/apicurio-$version
. "$here/jars.sh"

fetch() {
	need java "Debian: apt install openjdk-17-jre-headless"
	[ -d "$app" ] || download
	echo "Apicurio $version"
}

download() (
	need mvn "Debian: apt install maven"
	echo "downloading Apicurio $version from Maven Central" >&2
	mkdir -p "$dir"
	work=$(mktemp -d "$app-XXXXXX")
	trap 'rm -rf "$work"' EXIT
	mvn --batch-mode --quiet org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy \
		-Dartifact="io.apicurio:apicurio-registry-app:$version:tar.gz:all" -DoutputDirectory="$work" </dev/null >&2
	tar -xzf "$work"/*.tar.gz -C "$work"
	rm "$work"/*.tar.gz
	mv "$work" "$app"
)

run() {
	fetch >/dev/null
	cd "$app"
	exec java -Xmx256m -Dquarkus.http.host=127.0.0.1 -Dquarkus.http.port="$1" -cp "$(echo ./*-runner.jar):lib/*" io.quarkus.runner.GeneratedMain
}

run_tests() {
	port=${PORT:-18081}
	need python3 "Debian: apt install python3-venv"
	fetch >/dev/null
	python=$dir/python-$clients-formats
	if [ ! -x "$python/bin/python" ]; then
		echo "downloading confluent-kafka $clients from PyPI" >&2
		python3 -m venv "$python-new"
		"$python-new/bin/pip" install -q --disable-pip-version-check "confluent-kafka[avro,json,protobuf]==$clients" >&2
		mv "$python-new" "$python"
	fi

	jars=$("$here/debezium.sh" classpath)

	log=$(mktemp)
	"$here/registry.sh" run "$port" >"$log" 2>&1 &
	server=$!
	trap 'kill "$server"; rm -f "$log"' EXIT
	trap 'exit 1' HUP INT TERM
	patience=120
	until grep -q 'Listening on' "$log"; do
		if ! kill -0 "$server" 2>/dev/null || [ "$patience" -eq 0 ]; then
			tail -n 20 "$log" >&2
			exit 1
		fi
		patience=$((patience - 1))
		sleep 1
	done
	cd "$here/.."
	CDC_OUTBOX_REGISTRY_URL="http://127.0.0.1:$port/apis/ccompat/v7" CDC_OUTBOX_REGISTRY_PYTHON="$python/bin/python" CDC_OUTBOX_REGISTRY_JARS="$jars" \
		go test -count=1 -v -run 'TestOthersRead|TestE2EKilledWhileRegistering|TestE2ERefusedSchema' ./internal/registry ./e2e
}

case "${1:-}" in
fetch) fetch ;;
run) run "$2" ;;
test) run_tests ;;
*)
	sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
