package container

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

var errRefused = errors.New("connection errRefused")

// start runs a container with the stand-in for an engine.
func start(t *testing.T, s Spec) *Container {
	t.Helper()
	s.Image, s.Port = "postgres:17", 5432
	return must.Get(Run(t.Context(), s))(t)
}

// Servers in a network find one another by name: it is made before them, they are
// created in it under theirs. It goes once they are gone.
func TestContainersOfOneNetworkHaveNames(t *testing.T) {
	standIn.changes()
	network := must.Get(NewNetwork(t.Context()))(t)
	made := standIn.changes()
	if len(made) != 1 || !strings.HasPrefix(made[0], "POST /networks/create ") {
		t.Fatalf("the engine was asked %v", made)
	}
	for _, name := range []string{"primary", "standby"} {
		c := start(t, Spec{Network: network, Name: name})
		_, body, _ := strings.Cut(standIn.changes()[0], "POST /containers/create ")
		var created struct {
			NetworkingConfig struct {
				EndpointsConfig map[string]struct {
					Aliases   []string
					NetworkID string
				}
			}
			HostConfig struct {
				PortBindings map[string][]struct {
					HostIP   string `json:"HostIp"`
					HostPort string
				}
			}
		}
		must.OK(t, json.Unmarshal([]byte(body), &created))
		joined := created.NetworkingConfig.EndpointsConfig[network.inner.Name]
		if !slices.Equal(joined.Aliases, []string{name}) || joined.NetworkID != networkID {
			t.Errorf("%s: created with %s", name, body)
		}
		// This machine goes on to reach it at a separate port.
		ports := created.HostConfig.PortBindings["5432/tcp"]
		if len(ports) != 1 || ports[0].HostIP+":"+ports[0].HostPort != c.Addr() {
			t.Errorf("%s at %s: published at %v", name, c.Addr(), ports)
		}
		must.OK(t, c.Close())
		standIn.changes()
	}
	must.OK(t, network.Close())
	if got, want := standIn.changes(), []string{"DELETE /networks/" + networkID}; !slices.Equal(got, want) {
		t.Errorf("the engine was asked %v, want %v", got, want)
	}
}

// A server that cannot start says why at once.
func TestAContainerThatEndsIsNotWaitedFor(t *testing.T) {
	setRunning(false)
	defer setRunning(true)
	_, err := Run(t.Context(), Spec{Image: "postgres:17", Port: 5432, Probe: func(context.Context, string) error { return errRefused }})
	if !errors.Is(err, await.ErrExited) || !strings.Contains(err.Error(), "code 2: FATAL:  no pg_hba.conf") {
		t.Errorf("%v, want %v and the container's last words", err, await.ErrExited)
	}
}

func setRunning(running bool) {
	standIn.mu.Lock()
	defer standIn.mu.Unlock()
	standIn.running = running
}

// It is waited for while it runs.
func TestAContainerThatStartsIsWaitedFor(t *testing.T) {
	attempts := 0
	c := start(t, Spec{Probe: func(context.Context, string) error {
		if attempts++; attempts < 3 {
			return errRefused
		}
		return nil
	}})
	if attempts != 3 {
		t.Errorf("%d attempts", attempts)
	}
	must.OK(t, c.Close())
}

func TestFilesOfAContainerAreSavedAndReplaced(t *testing.T) {
	c := start(t, Spec{})
	defer c.Close()
	var saved bytes.Buffer
	must.OK(t, c.Save(t.Context(), "/data", &saved))
	if saved.String() != "tar of /data" {
		t.Errorf("saved %q", saved.String())
	}
	standIn.changes()
	must.OK(t, c.Put(t.Context(), "/restore", &saved))
	want := []string{"PUT /containers/" + containerID + "/archive /restore tar of /data"}
	if got := standIn.changes(); !slices.Equal(got, want) {
		t.Errorf("the engine was asked %v, want %v", got, want)
	}
}
