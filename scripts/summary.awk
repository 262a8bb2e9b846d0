# Reads the events of go test -json. The first line that it prints is the count:
# N passed, N failed, N skipped. Then come the tests that are flaky, the servers that
# the tests had, and the tests that were skipped, with the reason.
#
# Counted are tests and subtests, by their last run. A package that fails without a
# failing test (it does not build, leaks a goroutine, times out) counts as one
# failure. What internal/lab/checker has found once (lost, reordered, ...) no other run
# undoes: such a test counts as failed, and the exit code is 1.

# field returns the value of a member of the event.
function field(name,    value) {
	if (!match($0, "\"" name "\":\"([^\"\\\\]|\\\\.)*\"")) return ""
	value = substr($0, RSTART + length(name) + 4, RLENGTH - length(name) - 5)
	if (index(value, "\\") == 0) return value
	gsub(/\\u003c/, "<", value)
	gsub(/\\u003e/, ">", value)
	gsub(/\\u0026/, "\\&", value)
	gsub(/\\[nr]/, "", value)
	gsub(/\\t/, " ", value)
	gsub(/\\"/, "\"", value)
	gsub(/\\\\/, "\\", value)
	return value
}

{
	action = field("Action"); package = field("Package"); test = field("Test")
	sub(/^github\.com\/cdc-outbox\/cdc-outbox\//, "", package)
	name = package " " test
}

action == "output" && /ran against: / {
	output = field("Output")
	sub(/^.*ran against: /, "", output)
	used[output] = 1
}

# The last line of a test that is skipped is the reason.
action == "output" && test != "" && /\.go:[0-9]+: / {
	output = field("Output")
	if (output ~ /_test\.go:[0-9]+: (lost|torn|ghost|altered|misrouted|misplaced|reordered|premature): /) wrong[name] = 1
	if (sub(/^ *[A-Za-z0-9_]+\.go:[0-9]+: /, "", output)) said[name] = output
}

action == "pass" || action == "fail" || action == "skip" {
	if (action == "fail") failed[name] = 1
	if (action == "fail" && test != "") broken[package] = 1
	last[name] = action
}

END {
	for (name in last) {
		split(name, part, " ")
		whole = part[2] == ""
		if (whole && (last[name] != "fail" || broken[part[1]])) continue
		flaky = !whole && failed[name] && last[name] == "pass"
		if (flaky && wrong[name]) {
			last[name] = "fail"
			status = 1
		}
		if (flaky) named = named (wrong[name] ? "\nwrong at first: " : "\nflaky: ") name
		n[last[name]]++
		if (last[name] == "skip") {
			split(part[2], path, "/")
			skipped["skipped: " part[1] " " path[1] ": " said[name]]++
		}
	}
	printf "%d passed, %d failed, %d skipped%s\n", n["pass"], n["fail"], n["skip"], named
	fflush()
	for (server in used) print "ran against " server | "sort"
	for (line in skipped) print line (skipped[line] > 1 ? " (" skipped[line] " subtests)" : "") | "sort"
	close("sort")
	exit status
}
