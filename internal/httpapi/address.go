package httpapi

import "net"

// Address is where the server of http.listen can be asked on the same machine; ok
// is false where it cannot be known.
func Address(listen string) (hostport string, ok bool) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil || port == "0" {
		return "", false
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port), true
}
