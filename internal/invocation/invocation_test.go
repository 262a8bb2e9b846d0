package invocation_test

import (
	"encoding/json"
	"testing"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cdc-outbox/cdc-outbox/internal/invocation"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestVerbsAreCompleted(t *testing.T) {
	in := invocation.Invocation{File: "o.yaml"}
	for _, verb := range []string{"wait", "verify", "repair", "replay", "dead-letters list", "dead-letters show", "dead-letters redrive", "quarantine list", "quarantine retry", "txn list"} {
		if got, want := in.In("cdc-outbox "+verb+" --yes"), "cdc-outbox "+verb+" -c o.yaml --yes"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestIn(t *testing.T) {
	const text = "`cdc-outbox setup --yes`, or cdc-outbox check -c x; cdc-outbox run; cdc-outbox-demo"
	for name, tt := range map[string]struct {
		in   invocation.Invocation
		want string
	}{
		"nothing is known": {invocation.Invocation{}, text},
		"a file": {invocation.Invocation{File: "o.yaml"},
			"`cdc-outbox setup -c o.yaml --yes`, or cdc-outbox check -c x; cdc-outbox run -c o.yaml; cdc-outbox-demo"},
		"a file that a shell would take apart": {invocation.Invocation{File: "it's mine.yaml"},
			"`cdc-outbox setup -c 'it'\\''s mine.yaml' --yes`, or cdc-outbox check -c x; cdc-outbox run -c 'it'\\''s mine.yaml'; cdc-outbox-demo"},
		"overrides": {invocation.Invocation{File: "o.yaml", Set: " --set a=b"},
			"`cdc-outbox setup -c o.yaml --set a=b --yes`, or cdc-outbox check -c x; cdc-outbox run -c o.yaml --set a=b; cdc-outbox-demo"},
		"overrides without a file": {invocation.Invocation{Set: " --set 'a= b'"},
			"`cdc-outbox setup --set 'a= b' --yes`, or cdc-outbox check -c x; cdc-outbox run --set 'a= b'; cdc-outbox-demo"},
		"a pipeline, of which run knows nothing": {invocation.Invocation{File: "o.yaml", Pipeline: "orders"},
			"`cdc-outbox setup -c o.yaml --pipeline orders --yes`, or cdc-outbox check -c x; cdc-outbox run -c o.yaml; cdc-outbox-demo"},
		"a container": {invocation.Invocation{Place: invocation.Container},
			"`docker compose run --rm --no-deps cdc-outbox setup --yes`, or docker compose run --rm --no-deps cdc-outbox check -c x; cdc-outbox run; cdc-outbox-demo"},
		"Kubernetes, with a pipeline": {invocation.Invocation{Pipeline: "orders", Place: invocation.Kubernetes},
			"`deploy/kubernetes/verb.sh setup --pipeline orders --yes`, or deploy/kubernetes/verb.sh check -c x; cdc-outbox run; cdc-outbox-demo"},
		"a second connector in Kubernetes": {invocation.Invocation{Place: invocation.Kubernetes, Connector: " -n apps -d billing-cdc-outbox"},
			"`deploy/kubernetes/verb.sh -n apps -d billing-cdc-outbox setup --yes`, or deploy/kubernetes/verb.sh -n apps -d billing-cdc-outbox check -c x; cdc-outbox run; cdc-outbox-demo"},
		"systemd, with a file": {invocation.Invocation{File: "o.yaml", Place: invocation.Systemd},
			"`cdc-outbox-verb setup -c o.yaml --yes`, or cdc-outbox-verb check -c x; cdc-outbox run -c o.yaml; cdc-outbox-demo"},
		"a pipeline, the file in the environment": {invocation.Invocation{Pipeline: "orders"},
			"`cdc-outbox setup --pipeline orders --yes`, or cdc-outbox check -c x; cdc-outbox run; cdc-outbox-demo"},
	} {
		t.Run(name, func(t *testing.T) {
			got := tt.in.In(text)
			if got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if again := tt.in.In(got); (tt.in.File != "" || tt.in.Place != invocation.Shell) && again != got {
				t.Errorf("a second time: %s", again)
			}
			encoded, err := json.Marshal(text)
			must.OK(t, err)
			var decoded string
			if err := json.Unmarshal([]byte(tt.in.InJSON(string(encoded))), &decoded); err != nil || decoded != tt.want {
				t.Errorf("in JSON: %s, %v", decoded, err)
			}
		})
	}
}

// Failure mode 142.
func TestPlaceOf(t *testing.T) {
	for name, tt := range map[string]struct {
		environ     map[string]string
		pid, parent int
		want        invocation.Place
	}{
		"a shell":                     {nil, 4711, 4710, invocation.Shell},
		"a container":                 {nil, 1, 0, invocation.Container},
		"a pod":                       {map[string]string{"KUBERNETES_SERVICE_HOST": "10.96.0.1"}, 1, 0, invocation.Kubernetes},
		"kubectl exec":                {map[string]string{"KUBERNETES_SERVICE_HOST": "10.96.0.1"}, 17, 0, invocation.Shell},
		"systemd":                     {map[string]string{"INVOCATION_ID": "0123456789abcdef0123456789abcdef"}, 4711, 1, invocation.Systemd},
		"a test that a service runs":  {map[string]string{"INVOCATION_ID": "0123456789abcdef0123456789abcdef"}, 4711, 4710, invocation.Shell},
		"a container of a unit":       {map[string]string{"INVOCATION_ID": "0123456789abcdef0123456789abcdef"}, 1, 0, invocation.Container},
		"a process whose parent died": {nil, 4711, 1, invocation.Shell},
	} {
		t.Run(name, func(t *testing.T) {
			if got := invocation.PlaceOf(func(name string) string { return tt.environ[name] }, tt.pid, tt.parent); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}

// Failure mode 163. Typed as it is, a remedy is about the connector that gave
// it.
func TestConnector(t *testing.T) {
	for _, tt := range []struct {
		place                invocation.Place
		namespace, pod, want string
	}{
		{invocation.Kubernetes, "cdc-outbox", "billing-cdc-outbox-7575c68959-4hzwh", " -n cdc-outbox -d billing-cdc-outbox"},
		{invocation.Kubernetes, "apps", "cdc-outbox-verb-x7k2p", " -n apps -d cdc-outbox"},
		{invocation.Kubernetes, "cdc-outbox", "cdc-outbox-7575c68959-4hzwh", ""},
		{invocation.Kubernetes, "apps", "pod", ""},
		{invocation.Kubernetes, "apps", "billing-cdc-outbox-0", " -n apps -d billing-cdc-outbox"},
		{invocation.Kubernetes, "apps", "orders-12", " -n apps -d orders"},
		{invocation.Kubernetes, "apps", "orders-7575c68959-24567", " -n apps -d orders"},
		{invocation.Kubernetes, "cdc-outbox", "cdc-outbox-1", ""},
		{invocation.Kubernetes, "", "", ""},
		{invocation.Container, "apps", "cdc-outbox-7575c68959-4hzwh", ""},
	} {
		environ := map[string]string{"POD_NAMESPACE": tt.namespace, "POD_NAME": tt.pod}
		if got := tt.place.Connector(func(name string) string { return environ[name] }); got != tt.want {
			t.Errorf("%s in %s: %q, want %q", tt.pod, tt.namespace, got, tt.want)
		}
	}
}

func TestOverrides(t *testing.T) {
	secret := func(key string) bool { return key == "source.url" }
	got := invocation.Overrides([]string{"source.slot=b", "source.url=postgres://cdc:secret@db/app", "route.topic=a $b"}, secret)
	if want := ` --set source.slot=b --set source.url=… --set 'route.topic=a $b'`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := invocation.Overrides(nil, secret); got != "" {
		t.Errorf("of none: %q", got)
	}
}

func TestLog(t *testing.T) {
	inner, logs := observer.New(zap.InfoLevel)
	log := invocation.Invocation{File: "o.yaml"}.Log(zap.New(inner)).With(zap.String("pipeline", "orders"))
	log.Debug("not logged")
	log.Warn("failed", zap.String("remedy", "cdc-outbox setup"), zap.String("row", "cdc-outbox setup"))
	entries := logs.All()
	if len(entries) != 1 {
		t.Fatalf("%d lines", len(entries))
	}
	got := entries[0].ContextMap()
	if got["remedy"] != "cdc-outbox setup -c o.yaml" || got["row"] != "cdc-outbox setup" || got["pipeline"] != "orders" {
		t.Errorf("logged %v", got)
	}
}

// A run with the option for a lost slot is typed in the place, as a verb is.
func TestARunForARepair(t *testing.T) {
	const text = "`cdc-outbox run --set errors.on_loss=repair` makes"
	for want, in := range map[string]invocation.Invocation{
		text: {},
		"`cdc-outbox run --set errors.on_loss=repair -c o.yaml --set a=b` makes":                          {File: "o.yaml", Set: " --set a=b", Pipeline: "orders"},
		"`docker compose run --rm --no-deps cdc-outbox run --set errors.on_loss=repair -c o.yaml` makes":  {File: "o.yaml", Place: invocation.Container},
		"`deploy/kubernetes/verb.sh -n apps -d billing-cdc-outbox run --set errors.on_loss=repair` makes": {Place: invocation.Kubernetes, Connector: " -n apps -d billing-cdc-outbox"},
		"`cdc-outbox-verb run --set errors.on_loss=repair -c o.yaml` makes":                               {File: "o.yaml", Place: invocation.Systemd},
	} {
		if got := in.In(text); got != want || in.In(got) != want {
			t.Errorf("got %s, and a second time %s, want %s", got, in.In(got), want)
		}
	}
}
