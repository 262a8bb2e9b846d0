package deploy

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// cluster stands in for kubectl with an API server. kubectl's own patch is used.
type cluster struct {
	t      *testing.T
	folder string
	// Shell commands with kubectl's answers.
	deployment, statefulSet, create, status, log string
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	var deployment struct {
		Spec struct{ Template struct{ Spec map[string]any } }
	}
	must.OK(t, yaml.Unmarshal([]byte(documentOf(t, kubectl(t), "Deployment")), &deployment))
	c := &cluster{t: t, folder: t.TempDir()}
	spec := "cdc-outbox " + string(must.Get(json.Marshal(deployment.Spec.Template.Spec))(t))
	must.OK(t, os.WriteFile(filepath.Join(c.folder, "spec"), []byte(spec), 0o600))
	c.deployment, c.statefulSet, c.create = "cat "+c.folder+"/spec", ":", "cat >"+c.folder+"/pod; echo cdc-outbox-verb-x7k2p"
	c.status, c.log = "echo 'Failed|3||'", "echo 'the output of the verb'"
	return c
}

// verb runs verb.sh, and returns exit code and output.
func (c *cluster) verb(args ...string) (code int, out string) {
	c.t.Helper()
	must.OK(c.t, os.WriteFile(filepath.Join(c.folder, "kubectl"), []byte(`#!/bin/sh
case "$*" in
"patch --local "*) exec `+kubectl(c.t)+` "$@" ;;
"config current-context") echo east ;;
"--namespace cdc-outbox get deployment cdc-outbox --ignore-not-found "*) `+c.deployment+` ;;
"--namespace cdc-outbox get statefulset cdc-outbox --ignore-not-found "*) `+c.statefulSet+` ;;
"--namespace cdc-outbox create "*) `+c.create+` ;;
"--namespace cdc-outbox get pod cdc-outbox-verb-x7k2p "*) `+c.status+` ;;
"--namespace cdc-outbox logs "*cdc-outbox-verb-x7k2p) `+c.log+` ;;
"--namespace cdc-outbox delete pod cdc-outbox-verb-x7k2p "*) echo 'it is deleted' ;;
*) echo "unexpected: $*" >&2; exit 9 ;;
esac
`), 0o700))
	cmd := exec.CommandContext(c.t.Context(), "sh", append([]string{"kubernetes/verb.sh"}, args...)...)
	cmd.Env = append(os.Environ(), "PATH="+c.folder+":"+os.Getenv("PATH"))
	b, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), string(b)
	}
	must.OK(c.t, err)
	return 0, string(b)
}

// Failure mode 142. verb.sh makes a pod of the Deployment's own spec, to run once.
func TestKubernetesVerb(t *testing.T) {
	c := newCluster(t)
	code, out := c.verb("-a", "cdc-outbox-admin", "setup", "--accept-gap", "--set", `log.level="a b"\`)
	must.Contain(t, out, "the output of the verb", "it is deleted")
	if code != 3 {
		t.Errorf("exit code %d", code)
	}
	var pod struct {
		Metadata struct{ Labels map[string]string }
		Spec     podSpec
	}
	must.OK(t, yaml.Unmarshal([]byte(read(t, filepath.Join(c.folder, "pod"))), &pod))
	container := pod.Spec.Containers[0]
	if want := []string{"setup", "--accept-gap", "--set", `log.level="a b"\`}; !slices.Equal(container.Args, want) {
		t.Errorf("it runs %q, want %q", container.Args, want)
	}
	if len(pod.Spec.Containers) != 1 || pod.Spec.RestartPolicy != "Never" || container.LivenessProbe != nil || container.ReadinessProbe != nil {
		t.Errorf("the pod is %+v", pod.Spec)
	}
	deployment := only(t, built(t, "kubernetes"), "Deployment")
	if matches(deployment.Spec.Selector.MatchLabels, pod.Metadata.Labels) {
		t.Errorf("it counts as one of the connector: %v", pod.Metadata.Labels)
	}
	own := deployment.Spec.Template.Spec
	if string(must.Get(json.Marshal(pod.Spec.SecurityContext))(t)) != string(must.Get(json.Marshal(own.SecurityContext))(t)) ||
		string(must.Get(json.Marshal(container.SecurityContext))(t)) != string(must.Get(json.Marshal(own.Containers[0].SecurityContext))(t)) {
		t.Errorf("its security context is another one: %+v", pod.Spec)
	}
	admin := slices.ContainsFunc(container.Env, func(e variable) bool {
		return e.Name == "CDC_OUTBOX_SOURCE_URL" && e.ValueFrom.SecretKeyRef.Name == "cdc-outbox-admin"
	})
	if !admin || len(container.Env) != len(own.Containers[0].Env)+1 {
		t.Errorf("its environment is %+v", container.Env)
	}
}

// A fleet's pods are of a StatefulSet.
func TestKubernetesVerbOfAFleet(t *testing.T) {
	c := newCluster(t)
	c.deployment, c.statefulSet = ":", c.deployment
	code, out := c.verb("check")
	must.Contain(t, out, "the output of the verb", "it is deleted")
	if code != 3 {
		t.Errorf("exit code %d", code)
	}
}

// Failure mode 162. verb.sh says whether the verb ran, and deletes the pod only if output
// and exit code are there.
func TestKubernetesVerbThatFails(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*cluster)
		args   []string
		code   int
		says   []string
	}{
		"no answer": {func(c *cluster) { c.deployment = "exit 1" }, []string{"check"},
			1, []string{"nothing was run", "deployment cdc-outbox", "could not be read", "context east"}},
		"no connector": {func(c *cluster) { c.deployment = ":" }, []string{"check"},
			1, []string{"nothing was run", "neither a Deployment nor a StatefulSet cdc-outbox", "context east"}},
		"the pod is refused": {func(c *cluster) { c.create = "exit 1" }, []string{"check"}, 1, []string{"nothing was run", "could not be made"}},
		"an argument that JSON would change": {func(*cluster) {}, []string{"check", "--set", "event.id=a\nb"},
			1, []string{"nothing was run", "control character"}},
		"the pod is deleted by somebody": {func(c *cluster) { c.status = ":" }, []string{"check"}, 1, []string{"is gone"}},
		"the pod is evicted before it starts": {func(c *cluster) { c.status = "echo 'Failed|||  Evicted low on memory '" }, []string{"check"},
			1, []string{"without the verb's exit code: Evicted low on memory", "is left"}},
		"the output breaks off": {func(c *cluster) { c.log = "exit 1" }, []string{"check"}, 3, []string{"ended with 3", "not read to the end", "is left"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			tt.change(c)
			code, out := c.verb(tt.args...)
			must.Contain(t, out, tt.says...)
			if code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			if strings.Contains(out, "it is deleted") || strings.Contains(out, "unexpected") {
				t.Error(out)
			}
		})
	}
}
