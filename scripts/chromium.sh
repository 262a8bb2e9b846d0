#!/bin/sh
# Prints the path of a Chromium or Chrome for the tests of the page. Where there is
# none, it installs Debian's, if it runs as root; else it says what to do, and fails.
set -eu

find_browser() {
	for name in "${CDC_OUTBOX_CHROMIUM:-}" chromium chromium-browser google-chrome google-chrome-stable chrome; do
		if [ -n "$name" ] && command -v "$name"; then
			return 0
		fi
	done
	return 1
}

find_browser && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
	export DEBIAN_FRONTEND=noninteractive
	{ apt-get update && apt-get install -y --no-install-recommends chromium; } >&2 || true
	find_browser && exit 0
fi
echo "chromium.sh: no Chromium (Debian: apt install chromium, or set CDC_OUTBOX_CHROMIUM to the program)" >&2
exit 1
