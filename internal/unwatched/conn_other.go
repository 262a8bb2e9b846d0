//go:build !linux

package unwatched

import "net"

// Conn returns conn.
func Conn(conn net.Conn) net.Conn { return conn }
