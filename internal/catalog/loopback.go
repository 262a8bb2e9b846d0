package catalog

import "net"

// OverLoopback reports whether a connection is over TCP loopback.
func OverLoopback(conn net.Conn) bool {
	remote := conn.RemoteAddr()
	return remote != nil && remote.Network() == "tcp" && isLoopback(remote.String())
}

// isLoopback reports whether an address with a port is on loopback.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && net.ParseIP(host).IsLoopback()
}
