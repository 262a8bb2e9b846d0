//go:build !linux

package wal

import "github.com/jackc/pgx/v5/pgconn"

// blockingSocket leaves the connection to the runtime's poller.
func blockingSocket(dial pgconn.DialFunc) pgconn.DialFunc { return dial }
