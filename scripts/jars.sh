# Read by the scripts beside it, whose programs are jars of Maven Central.

# need PROGRAM REMEDY ends with 3 where the program is missing: dynamoserver tells that
# from a download that fails.
need() {
	command -v "$1" >/dev/null || {
		echo "$(basename "$0"): $1 is not installed ($2)" >&2
		exit 3
	}
}

# fetch_jars NAME DIR MAVEN-OPTION… downloads what the options' POM depends on
# into DIR unless it is there, and prints DIR. It downloads into a directory
# beside DIR, so that jars are there whole or not at all.
fetch_jars() (
	name=$1 jars=$2
	shift 2
	if [ ! -d "$jars" ]; then
		need mvn "Debian: apt install maven"
		echo "downloading $name from Maven Central into $jars" >&2
		mkdir -p "$(dirname "$jars")"
		work=$(mktemp -d "$jars-XXXXXX")
		trap 'rm -rf "$work"' EXIT
		trap 'exit 1' HUP INT TERM # which alone would not run the above
		again=2 # a repository may be out of reach for a moment
		until mvn --batch-mode --quiet -Dstyle.color=never "$@" \
			dependency:copy-dependencies -DoutputDirectory="$work/jars" </dev/null >&2; do
			[ "$again" -gt 0 ] || exit 1
			again=$((again - 1))
			sleep 5
		done
		echo >&2 # Maven's last line is escape codes and has no end
		mv "$work/jars" "$jars" 2>/dev/null || [ -d "$jars" ] # or another process was faster
	fi
	echo "$jars"
)
