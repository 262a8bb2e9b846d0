package deploy

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/docker/go-connections/nat"
	"go.yaml.in/yaml/v3"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// service is a service of the compose file.
type service struct {
	Image       string
	Build       struct{ Context, Target string }
	Environment map[string]string
	Ports       []string
	Healthcheck struct{ Test []string }
}

func services(t *testing.T) map[string]service {
	t.Helper()
	var compose struct{ Services map[string]service }
	must.OK(t, yaml.Unmarshal([]byte(read(t, "../docker-compose.yml")), &compose))
	return compose.Services
}

func TestComposeBuildsTargetsThatExist(t *testing.T) {
	built := 0
	for name, s := range services(t) {
		if s.Build.Context == "" {
			continue
		}
		built++
		if !slices.ContainsFunc(stages(t), func(st stage) bool { return st.name == s.Build.Target }) {
			t.Errorf("service %s builds the target %q, which the Dockerfile does not have", name, s.Build.Target)
		}
	}
	if built == 0 {
		t.Error("no service is built")
	}
}

// Failure mode 145. A port of the host may be taken: the next of a range is used
// then, or another can be chosen, and none is open to the network. Kafka tells its
// clients the port, so a moved port would serve none of them: Kafka gets the chosen
// port, or any.
func TestComposePortsMoveOrCanBeChosen(t *testing.T) {
	port := regexp.MustCompile(`^(127\.0\.0\.1):\$\{(\w+_PORT):-((\d*)(?:-\d+)?)\}:(\d+)$`)
	comment, _, _ := strings.Cut(read(t, "../docker-compose.yml"), "\nname:")
	published := map[string]string{} // variable by port
	for name, s := range services(t) {
		for _, p := range s.Ports {
			m := port.FindStringSubmatch(p)
			if m == nil {
				t.Errorf("service %s publishes %s, which cannot be chosen or is not on loopback", name, p)
				continue
			}
			address, variable, given, first, inside := m[1], m[2], m[3], m[4], m[5]
			// As Compose reads it: a range for one port, or none, is the engine's to choose from.
			mapped := must.Get(nat.ParsePortSpec(address + ":" + given + ":" + inside))(t)
			moves := len(mapped) == 1 && mapped[0].Binding.HostPort == given && (given == "" || given != first)
			switch {
			case published[first] != "":
				t.Errorf("port %s is both %s and %s", first, published[first], variable)
			case !strings.Contains(comment, variable):
				t.Errorf("%s is not documented", variable)
			case !moves, (given == "") != (name == "kafka"):
				t.Errorf("service %s publishes %s, which may be taken", name, p)
			}
			published[first] = variable
		}
	}
	if len(published) < 6 {
		t.Errorf("only %d ports found", len(published))
	}
	// Kafka's clients connect to the advertised address, whatever they were given.
	if !strings.HasSuffix(services(t)["kafka"].Environment["KAFKA_ADVERTISED_LISTENERS"], "EXTERNAL://localhost:${KAFKA_PORT:-9094}") {
		t.Error("Kafka does not advertise the port that is chosen for it")
	}
}

// Kafka's tools start a JVM, and keep a core busy for seconds.
func TestComposeHealthChecksAreCheap(t *testing.T) {
	for name, s := range services(t) {
		if strings.Contains(strings.Join(s.Healthcheck.Test, " "), "kafka-") {
			t.Errorf("service %s runs %v again and again", name, s.Healthcheck.Test)
		}
	}
}
