// Package freeport finds TCP ports of the loopback address for servers that are
// told their port before they listen, or that are stopped and started again.
//
// Invariants:
//
//  1. No connection takes the port for its own end while the server is not
//     there: such ports come from another range.
//  2. No other caller, in any process, gets the port as long as the first
//     caller's process lives.
//
// Non-goals: servers listening on a port of the system's choice, theirs from
// the start; giving ports back.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// The range. Linux (from 32768) and IANA (from 49152) take the ports of
// connections from above it.
const first, last = 20000, 32767

// tries is how many ports are tried; nearly all are free.
const tries = 100

// held keeps what marks our ports as taken.
var held struct {
	sync.Mutex
	marks []net.PacketConn
}

// Take returns a port nobody listens on, and holds it until this process ends.
// A server may listen there, in this process or another, as often as it likes.
func Take() (port int, err error) {
	for range tries {
		port = first + rand.IntN(last-first+1)
		var mark net.PacketConn
		if mark, err = take(port); err != nil {
			continue
		}
		held.Lock()
		defer held.Unlock()
		held.marks = append(held.marks, mark)
		return port, nil
	}
	return 0, fmt.Errorf("find a free port: %w", err)
}

// TakeAddress is Take, and returns host:port.
func TakeAddress() (address string, err error) {
	port, err := Take()
	if err != nil {
		return "", err
	}
	return loopback(port), nil
}

// take marks the port by taking the UDP port of the same number, which leaves
// that of TCP to the server.
func take(port int) (mark net.PacketConn, err error) {
	mark, err = net.ListenPacket("udp4", loopback(port))
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp4", loopback(port))
	if err != nil {
		_ = mark.Close()
		return nil, err
	}
	return mark, l.Close()
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
