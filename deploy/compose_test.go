package deploy

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/cdc-outbox/cdc-outbox/internal/must"
)

// service is one of the compose file.
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

// A port of the host may be taken: each can be another one, and none is open to
// the network.
func TestComposePortsCanBeChosen(t *testing.T) {
	port := regexp.MustCompile(`^127\.0\.0\.1:\$\{(\w+_PORT):-(\d+)\}:\d+$`)
	comment, _, _ := strings.Cut(read(t, "../docker-compose.yml"), "\nname:")
	published := map[string]string{} // variable by port
	for name, s := range services(t) {
		for _, p := range s.Ports {
			m := port.FindStringSubmatch(p)
			switch {
			case m == nil:
				t.Errorf("service %s publishes %s, which cannot be chosen or is not on loopback", name, p)
			case published[m[2]] != "":
				t.Errorf("port %s is both %s and %s", m[2], published[m[2]], m[1])
			case !strings.Contains(comment, m[1]):
				t.Errorf("%s is not documented", m[1])
			default:
				published[m[2]] = m[1]
			}
		}
	}
	if len(published) < 6 {
		t.Errorf("only %d ports found", len(published))
	}
	// Kafka's clients connect to what it advertises, not to what they were told.
	if !strings.HasSuffix(services(t)["kafka"].Environment["KAFKA_ADVERTISED_LISTENERS"], "EXTERNAL://localhost:${KAFKA_PORT:-9094}") {
		t.Error("Kafka does not advertise the port that is chosen for it")
	}
}

// Kafka's tools start a JVM, which takes a core for seconds.
func TestComposeHealthChecksAreCheap(t *testing.T) {
	for name, s := range services(t) {
		if strings.Contains(strings.Join(s.Healthcheck.Test, " "), "kafka-") {
			t.Errorf("service %s runs %v again and again", name, s.Healthcheck.Test)
		}
	}
}
