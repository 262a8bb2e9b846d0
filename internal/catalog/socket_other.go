//go:build !linux

package catalog

import "github.com/jackc/pgx/v5/pgconn"

// quietSocket leaves the connection to the runtime's poller.
func quietSocket(dial pgconn.DialFunc) pgconn.DialFunc { return dial }

// smallWindows leaves the connection unchanged.
func smallWindows(dial pgconn.DialFunc) pgconn.DialFunc { return dial }
