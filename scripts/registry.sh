#!/bin/sh
# Runs the tests of package internal/registry with a schema registry of another vendor,
# Apicurio, and Confluent's deserializers for Python. Both are downloaded once.
set -eu
cd "$(dirname "$0")/.."
. scripts/jars.sh

version=2.6.13.Final
clients=2.16.1
port=${PORT:-18081}
dir=${XDG_CACHE_HOME:-$HOME/.cache}/cdc-outbox/registry
need java "Debian: apt install openjdk-17-jre-headless"
need python3 "Debian: apt install python3-venv"

app=$dir/apicurio-$version
if [ ! -d "$app" ]; then
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
fi
python=$dir/python-$clients-formats
if [ ! -x "$python/bin/python" ]; then
	echo "downloading confluent-kafka $clients from PyPI" >&2
	python3 -m venv "$python-new"
	"$python-new/bin/pip" install -q --disable-pip-version-check "confluent-kafka[avro,json,protobuf]==$clients" >&2
	mv "$python-new" "$python"
fi

log=$(mktemp)
(cd "$app" && exec java -Xmx256m -Dquarkus.http.host=127.0.0.1 -Dquarkus.http.port="$port" -cp "$(echo ./*-runner.jar):lib/*" io.quarkus.runner.GeneratedMain) >"$log" 2>&1 &
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
CDC_OUTBOX_REGISTRY_URL="http://127.0.0.1:$port/apis/ccompat/v7" CDC_OUTBOX_REGISTRY_PYTHON="$python/bin/python" \
	go test -count=1 -v -run TestOthersRead ./internal/registry
