package broker_test

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/broker"
)

// never is longer than anybody waits.
const never = time.Minute

// named has a name with these addresses.
func named(t *testing.T, hosts ...string) {
	t.Helper()
	t.Cleanup(broker.SetLookup(func(context.Context, string) ([]string, error) { return hosts, nil }))
}

// A name with several addresses is connected to if any answers, and soon the next time.
func TestNameOfWhichMostAddressesAreSilent(t *testing.T) {
	for name, silent := range map[string]broker.DialFunc{
		"take connections": slow(never),
		"drop packets": func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
		"refuse": func(context.Context, string, string) (net.Conn, error) { return nil, syscall.ECONNREFUSED },
	} {
		t.Run(name, func(t *testing.T) {
			named(t, "192.0.2.11", "192.0.2.12", "192.0.2.13", "192.0.2.14")
			port := address()[len("192.0.2.1"):]
			dial := broker.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
				if broker.Address(ctx, addr) == "192.0.2.14"+port {
					return slow(0)(ctx, network, addr)
				}
				return silent(ctx, network, addr)
			})
			synctest.Test(t, func(t *testing.T) {
				attempts := 1
				for ; ask(t, dial, "broker"+port) != nil; attempts++ {
					if attempts > 4 {
						t.Fatal("not connected to")
					}
				}
				began := time.Now()
				if err := ask(t, dial, "broker"+port); err != nil || time.Since(began) > time.Second {
					t.Errorf("the next connection: %v after %s", err, time.Since(began))
				}
				<-time.After(2 * never) // the silent dials end
			})
		})
	}
}

func TestNameOfWhichAllAddressesAreSilent(t *testing.T) {
	named(t, "192.0.2.11", "192.0.2.12")
	port := address()[len("192.0.2.1"):]
	synctest.Test(t, func(t *testing.T) {
		dial := broker.Dialer(slow(never))
		for range 2 {
			if err := ask(t, dial, "broker"+port); err == nil || errors.Is(err, syscall.EHOSTDOWN) {
				t.Fatalf("ask = %v, want a wait in vain", err)
			}
		}
		if err := ask(t, dial, "broker"+port); err == nil {
			t.Error("connected to a silent one")
		}
		<-time.After(2 * never)
	})
}
