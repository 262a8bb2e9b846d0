package deploy

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// A real API server takes each manifest by strict validation, without a warning, and the
// pods under restricted.
func TestHelmManifestsOnAnAPIServer(t *testing.T) {
	s := newAPIServer(t)
	for _, name := range charted {
		file := filepath.Join(t.TempDir(), name+".yaml")
		manifests := template(t, "billing", "--values", values(name), "--set", "serviceMonitor.enabled=false", "--namespace", s.namespace)
		must.OK(t, os.WriteFile(file, manifests, 0o600))
		if out := s.run("apply", "--server-side", "--validate=strict", "--dry-run=server", "--filename", file); strings.Contains(out, "Warning") {
			t.Errorf("%s: %s", name, out)
		}
	}
}

// Controllers roll a release to other values and back, after setup, and drain nodes,
// always a single instance at a time. The test plays the kubelet.
func TestHelmReleaseOnAnAPIServer(t *testing.T) {
	s := newAPIServer(t)
	if s.run("get", "nodes", "--output", "name") != "" {
		t.Skip("the cluster has nodes: this test cannot say which pods are ready")
	}
	s.release("install", "minimal")
	await.Until(t, "two instances", func() bool { return s.makeReady("") == 2 })
	first := s.instances()[0]
	s.run("wait", "poddisruptionbudget", "billing-cdc-outbox", "--for=jsonpath={.status.disruptionsAllowed}=1", "--timeout=60s")

	// A node is drained: the last ready instance stays until another is ready.
	must.OK(t, s.evict(first.name))
	await.Until(t, "the instance in its place", func() bool { return len(s.instances()) == 2 && s.named(first.name) == nil })
	for _, i := range s.instances() {
		if i.ready && s.evict(i.name) == nil {
			t.Error("both instances are evicted")
		}
	}
	await.Until(t, "two instances again", func() bool { return s.makeReady("") == 2 })

	upgrade := s.helm("upgrade", "production", "--set", "replicas=2")
	var out bytes.Buffer
	upgrade.Stdout, upgrade.Stderr = &out, &out
	must.OK(t, upgrade.Start())
	pod := s.podOf("cdc-outbox-setup")
	if n := s.of(first.configuration); n != 2 {
		t.Errorf("%d instances are left before setup has ended", n)
	}
	s.run("patch", pod, "--subresource=status", "--type=merge", "--patch", `{"status":{"phase":"Succeeded"}}`)
	if err := upgrade.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	if left := s.run("get", "jobs,configmaps", "--output", "name"); strings.Contains(left, "setup") {
		t.Errorf("setup leaves %s", left)
	}

	// The new instance is not ready, as after a mistake: the other instance is left.
	await.Until(t, "an instance with the new values", func() bool { return len(s.instances()) == 2 && s.of(first.configuration) == 1 })
	s.run("wait", "deployment", "billing-cdc-outbox", "--for=jsonpath={.status.unavailableReplicas}=1", "--timeout=60s")
	if n := s.of(first.configuration); n != 1 {
		t.Errorf("%d instances of the former values are left beside a new one that is not ready", n)
	}
	await.Until(t, "both instances with the new values", func() bool {
		return s.makeReady(first.configuration) == 2 && s.of(first.configuration) == 0
	})

	s.release("rollback", "")
	await.Until(t, "both instances with the former values", func() bool { return s.makeReady("") == 2 && s.of(first.configuration) == 2 })
	s.release("uninstall", "")
	await.Until(t, "the end of the release", func() bool {
		return !strings.Contains(s.run("get", "deployments,services,poddisruptionbudgets,networkpolicies,serviceaccounts,configmaps", "--output", "name"), "billing")
	})
}

// Controllers turn spares into a fleet, roll a new file through it, from the last member to
// the first, and take back the file of a mistake; a drained node takes a single member at a
// time. The test plays the kubelet.
func TestHelmFleetOnAnAPIServer(t *testing.T) {
	s := newAPIServer(t)
	if s.run("get", "nodes", "--output", "name") != "" {
		t.Skip("the cluster has nodes: this test cannot say which pods are ready")
	}
	s.release("install", "minimal")
	await.Until(t, "two instances", func() bool { return s.makeReady("") == 2 })
	s.release("upgrade", "fleet")
	members := []string{"billing-cdc-outbox-0", "billing-cdc-outbox-1", "billing-cdc-outbox-2"}
	names := func() (all []string) {
		for _, i := range s.instances() {
			all = append(all, i.name)
		}
		slices.Sort(all)
		return all
	}
	await.Until(t, "three members, and no instance besides", func() bool { s.makeReady(""); return slices.Equal(names(), members) })
	first := s.instances()[0].configuration
	s.run("wait", "poddisruptionbudget", "billing-cdc-outbox", "--for=jsonpath={.status.disruptionsAllowed}=1", "--timeout=60s")

	// A node is drained: until its member is ready elsewhere, the others stay.
	evicted := s.uid(members[1])
	must.OK(t, s.evict(members[1]))
	await.Until(t, "the member in its place", func() bool { uid := s.uid(members[1]); return uid != "" && uid != evicted })
	for _, name := range []string{members[0], members[2]} {
		if s.evict(name) == nil {
			t.Errorf("%s is evicted, too", name)
		}
	}
	await.Until(t, "three members again", func() bool { s.makeReady(""); return slices.Equal(names(), members) && s.allReady() })

	// A mistake stays with the last member, which is not ready.
	mistake := s.helm("upgrade", "fleet", "--set", "config.pipelines.orders.source.slot=mistake")
	must.OK(t, mistake.Run())
	await.Until(t, "the last member with the new file", func() bool { i := s.named(members[2]); return i != nil && i.configuration != first })
	mistaken := s.named(members[2]).configuration
	s.run("wait", "statefulset", "billing-cdc-outbox", "--for=jsonpath={.status.updatedReplicas}=1", "--timeout=60s")
	if n := s.of(first); n != 2 {
		t.Errorf("%d members of the former file are left beside the mistake", n)
	}
	s.release("rollback", "")
	await.Until(t, "the member without the mistake", func() bool { return s.makeReady(mistaken) == 3 && s.of(first) == 3 })
	await.Until(t, "three ready members", func() bool { s.makeReady(""); return s.allReady() })

	// A right file goes from the last member to the first.
	upgrade := s.helm("upgrade", "fleet", "--set", "config.pipelines.orders.source.slot=orders")
	must.OK(t, upgrade.Run())
	for _, next := range []string{members[2], members[1], members[0]} {
		await.Until(t, "the new file at "+next, func() bool { i := s.named(next); return i != nil && i.configuration != first })
		for _, i := range s.instances() {
			if i.name < next && i.configuration != first {
				t.Errorf("%s has the new file before %s is ready", i.name, next)
			}
		}
		s.makeReady("")
	}
	s.release("uninstall", "")
	await.Until(t, "the end of the release", func() bool { return len(s.instances()) == 0 })
}

// uid tells a pod from others of its name; "" for none.
func (s *apiServer) uid(pod string) string {
	s.t.Helper()
	return s.run("get", "pod", pod, "--ignore-not-found", "--output", "jsonpath={.metadata.uid}")
}

func (s *apiServer) allReady() bool {
	s.t.Helper()
	return !slices.ContainsFunc(s.instances(), func(i instance) bool { return !i.ready })
}

// helm is a command for the release billing in the namespace, with values where these
// have a name.
func (s *apiServer) helm(verb, name string, args ...string) *exec.Cmd {
	s.t.Helper()
	all := []string{verb, "billing", "--namespace", s.namespace}
	if name != "" {
		all = append(all, chart, "--values", values(name), "--set", "serviceMonitor.enabled=false")
	}
	return helm(s.t, append(all, args...)...)
}

func (s *apiServer) release(verb, name string) {
	s.t.Helper()
	if out, err := s.helm(verb, name).CombinedOutput(); err != nil {
		s.t.Fatalf("helm %s: %v\n%s", verb, err, out)
	}
}

// instance is a pod of the connector.
type instance struct {
	name, configuration string
	ready               bool
}

func (s *apiServer) instances() (all []instance) {
	s.t.Helper()
	columns := `jsonpath={range .items[*]}{.metadata.name}|{.metadata.annotations.checksum/config}|{.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}`
	for line := range strings.Lines(s.run("get", "pods", "--selector", "app.kubernetes.io/name=cdc-outbox", "--output", columns)) {
		parts := strings.Split(strings.TrimSpace(line), "|")
		all = append(all, instance{parts[0], parts[1], parts[2] == "True"})
	}
	return all
}

func (s *apiServer) named(name string) *instance {
	s.t.Helper()
	for _, i := range s.instances() {
		if i.name == name {
			return &i
		}
	}
	return nil
}

// of counts the instances with a configuration.
func (s *apiServer) of(configuration string) (n int) {
	s.t.Helper()
	for _, i := range s.instances() {
		if i.configuration == configuration {
			n++
		}
	}
	return n
}

// makeReady makes the instances ready, but those with a configuration, and returns how
// many are there. A pod that goes meanwhile needs no more.
func (s *apiServer) makeReady(but string) int {
	s.t.Helper()
	all := s.instances()
	for _, i := range all {
		if !i.ready && i.configuration != but {
			_ = exec.CommandContext(s.t.Context(), "kubectl", "--namespace", s.namespace, "patch", "pod", i.name, "--subresource=status", "--type=merge",
				"--patch", `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`).Run()
		}
	}
	return len(all)
}

// evict takes a pod away, as kubectl drain does.
func (s *apiServer) evict(pod string) error {
	cmd := exec.CommandContext(s.t.Context(), "kubectl", "create", "--raw", fmt.Sprintf("/api/v1/namespaces/%s/pods/%s/eviction", s.namespace, pod), "--filename", "-")
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":%q}}`, pod))
	return cmd.Run()
}
