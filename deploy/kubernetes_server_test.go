package deploy

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// apiServer is an API server named by the developer, with a namespace for the test.
type apiServer struct {
	t         *testing.T
	namespace string
}

// newAPIServer skips the test where there is none. KUBECONFIG alone may lead to a
// cluster in use.
func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	config := os.Getenv("CDC_OUTBOX_TEST_KUBECONFIG")
	if config == "" {
		t.Skip("CDC_OUTBOX_TEST_KUBECONFIG names no API server")
	}
	kubectl(t)
	t.Setenv("KUBECONFIG", config)
	s := &apiServer{t, strings.ToLower("cdc-outbox-" + time.Now().UTC().Format("20060102t150405"))}
	s.run("create", "namespace", s.namespace)
	t.Cleanup(func() {
		must.Get(exec.Command("kubectl", "delete", "namespace", s.namespace, "--wait=false").Output())(t)
	})
	s.run("label", "namespace", s.namespace, "pod-security.kubernetes.io/enforce=restricted")
	return s
}

// run is kubectl in the namespace.
func (s *apiServer) run(args ...string) string {
	s.t.Helper()
	out, err := exec.CommandContext(s.t.Context(), "kubectl", append([]string{"--namespace", s.namespace}, args...)...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// podOf waits for the only pod with an app's name.
func (s *apiServer) podOf(app string) (pod string) {
	s.t.Helper()
	await.Until(s.t, "the pod of "+app, func() bool {
		pod = strings.TrimSpace(s.run("get", "pods", "--selector", "app.kubernetes.io/name="+app, "--output", "name"))
		return pod != ""
	})
	return pod
}

// apply makes a connector of the folder in the test's namespace, with the Job of setup.
func (s *apiServer) apply(folder string) {
	s.t.Helper()
	all := s.t.TempDir()
	must.OK(s.t, os.CopyFS(all, os.DirFS("kubernetes")))
	file := filepath.Join(all, folder, "kustomization.yaml")
	text := strings.Replace(read(s.t, file), "# components:", "components:", 1)
	before, after, _ := strings.Cut(text, "\nnamespace: ")
	_, after, _ = strings.Cut(after, "\n")
	must.OK(s.t, os.WriteFile(file, []byte(before+"\nnamespace: "+s.namespace+"\n"+after), 0o600))
	s.run("apply", "--kustomize", filepath.Dir(file), "--dry-run=server")
	s.run("apply", "--kustomize", filepath.Dir(file))
	s.run("diff", "--kustomize", filepath.Dir(file)) // ends with 1 where anything differs
}

// A real API server, with controllers, takes two connectors in a namespace
// and their pods under restricted, gives each a separate budget, and takes the
// pod of a verb.
func TestKubernetesOnAnAPIServer(t *testing.T) {
	s := newAPIServer(t)
	for folder, name := range map[string]string{".": "cdc-outbox", "overlays/second": "billing-cdc-outbox"} {
		s.apply(folder)
		s.run("wait", "deployment", name, "--for=jsonpath={.status.replicas}=2", "--timeout=60s")
		s.run("wait", "job", name+"-setup", "--for=jsonpath={.status.active}=1", "--timeout=60s")
	}
	for _, name := range []string{"cdc-outbox", "billing-cdc-outbox"} {
		s.run("wait", "poddisruptionbudget", name, "--for=jsonpath={.status.expectedPods}=2", "--timeout=60s")
	}
	if s.run("get", "nodes", "--output", "name") != "" {
		t.Skip("the cluster has nodes: this test cannot say how a pod ends")
	}
	verb := exec.CommandContext(t.Context(), "sh", "kubernetes/verb.sh", "-n", s.namespace, "-d", "billing-cdc-outbox", "check")
	var out strings.Builder
	verb.Stdout, verb.Stderr = &out, &out
	must.OK(t, verb.Start())
	pod := s.podOf("cdc-outbox-verb")
	s.run("patch", pod, "--subresource=status", "--type=merge", "--patch", `{"status":{"phase":"Failed","containerStatuses":[{"name":"cdc-outbox",
		"image":"cdc-outbox","imageID":"","ready":false,"restartCount":0,"state":{"terminated":{"exitCode":3}}}]}}`)
	if exit, ok := errors.AsType[*exec.ExitError](verb.Wait()); !ok || exit.ExitCode() != 3 {
		t.Errorf("it ends with %v", exit)
	}
	must.Contain(t, out.String(), "deleted") // of a pod without a node the log is empty
}
