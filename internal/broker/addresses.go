package broker

import (
	"context"
	"net"
	"slices"
	"time"
)

// lookup is net.DefaultResolver's, except in tests.
var lookup = net.DefaultResolver.LookupHost

// stagger is the wait for an address of a name until the next is tried, too, as in
// RFC 8305.
const stagger = 300 * time.Millisecond

type chosenKey struct{}

// Address is the address for a dial to connect to in place of addr: an address of
// the name. Each may be silent while the others are not.
func Address(ctx context.Context, addr string) string {
	if one, ok := ctx.Value(chosenKey{}).(string); ok {
		return one
	}
	return addr
}

// addresses are the addresses of the name in addr. For an IP address, and for a name with no
// address or a single one, they are addr itself.
func addresses(ctx context.Context, addr string) []string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || net.ParseIP(host) != nil {
		return []string{addr}
	}
	ctx, cancel := context.WithTimeout(ctx, firstAnswer)
	defer cancel()
	found, err := lookup(ctx, host)
	if err != nil || len(found) < 2 {
		return []string{addr}
	}
	var all []string
	for _, one := range found {
		all = append(all, net.JoinHostPort(one, port))
	}
	return all
}

// Patience is the longest time until a connection to a broker, given as addresses, while the
// others are silent.
func Patience(ctx context.Context, brokers []string) (sum time.Duration) {
	for _, addr := range brokers {
		sum += time.Duration(len(addresses(ctx, addr))) * firstAnswer
	}
	return sum
}

// race calls dial for the addresses in turn, with a small wait for each, or none after a
// failure, and returns the first connection. The others are closed.
func race(ctx context.Context, addresses []string, dial func(ctx context.Context, address string) (net.Conn, error)) (net.Conn, error) {
	if len(addresses) == 1 {
		return dial(ctx, addresses[0])
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type outcome struct {
		conn net.Conn
		err  error
	}
	outcomes := make(chan outcome)
	running := 0
	defer func() {
		left := running
		go func() { // the dials end soon, as ctx has
			for range left {
				if o := <-outcomes; o.conn != nil {
					_ = o.conn.Close()
				}
			}
		}()
	}()
	var last error
	for {
		var next <-chan time.Time
		if len(addresses) > 0 {
			address := addresses[0]
			addresses = addresses[1:]
			running++
			go func() {
				conn, err := dial(context.WithValue(ctx, chosenKey{}, address), address)
				outcomes <- outcome{conn, err}
			}()
			next = time.After(stagger)
		}
		for waiting := true; waiting; {
			select {
			case o := <-outcomes:
				running--
				if o.err == nil {
					return o.conn, nil
				}
				if last = o.err; running == 0 && len(addresses) == 0 {
					return nil, last
				}
				waiting = len(addresses) == 0
			case <-next:
				next, waiting = nil, len(addresses) == 0
			}
		}
	}
}

// answering are the addresses that may be connected to now, first those without a known
// silence.
func (u *unresponsive) answering(all []string) (able []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	var doubtful []string
	for _, address := range all {
		switch s, known := u.brokers[address]; {
		case !known:
			able = append(able, address)
		case !now.Before(s.until):
			doubtful = append(doubtful, address)
		}
	}
	return slices.Concat(able, doubtful)
}
