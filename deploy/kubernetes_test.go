package deploy

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// connectors are the folders of deploy/kubernetes, with a connector each.
var connectors = []string{".", "overlays/existing-namespace", "overlays/second"}

// object is the tested part of a Kubernetes object.
type object struct {
	Kind     string
	Metadata struct {
		Name, Namespace string
		Labels          map[string]string
	}
	Spec struct {
		Selector                   selector
		PodSelector                selector `yaml:"podSelector"`
		UnhealthyPodEvictionPolicy string   `yaml:"unhealthyPodEvictionPolicy"`
		PodManagementPolicy        string   `yaml:"podManagementPolicy"`
		ServiceName                string   `yaml:"serviceName"`
		Template                   struct {
			Metadata struct{ Labels map[string]string }
			Spec     podSpec
		}
	}
	Data map[string]string
}

type selector struct {
	MatchLabels map[string]string `yaml:"matchLabels"`
}

type podSpec struct {
	RestartPolicy             string          `yaml:"restartPolicy"`
	SecurityContext           securityContext `yaml:"securityContext"`
	TopologySpreadConstraints []struct {
		LabelSelector selector `yaml:"labelSelector"`
	} `yaml:"topologySpreadConstraints"`
	Containers []struct {
		Name, Image     string
		Args            []string
		Env             []variable
		SecurityContext securityContext `yaml:"securityContext"`
		LivenessProbe   any             `yaml:"livenessProbe"`
		ReadinessProbe  any             `yaml:"readinessProbe"`
	}
	Volumes []struct {
		Name      string
		ConfigMap reference `yaml:"configMap"`
	}
}

type variable struct {
	Name      string
	Value     string
	ValueFrom struct {
		SecretKeyRef reference `yaml:"secretKeyRef"`
		FieldRef     struct {
			FieldPath string `yaml:"fieldPath"`
		} `yaml:"fieldRef"`
	} `yaml:"valueFrom"`
}

type reference struct {
	Name     string
	Key      string
	Optional bool
}

type securityContext struct {
	RunAsNonRoot             bool  `yaml:"runAsNonRoot"`
	AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
	Capabilities             struct{ Drop []string }
	SeccompProfile           struct{ Type string } `yaml:"seccompProfile"`
}

// kubectl is the program's path; the test is skipped where there is none.
func kubectl(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("kubectl")
	if err != nil {
		t.Skip("kubectl is not installed: nothing builds the manifests")
	}
	return path
}

// built are the objects sent by kubectl apply --kustomize for a folder of kubernetes.
func built(t *testing.T, folder string) []object {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), kubectl(t), "kustomize", folder)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || strings.Contains(stderr.String(), "deprecated") {
		t.Fatalf("kubectl kustomize %s: %v\n%s", folder, err, &stderr)
	}
	return decoded(t, out)
}

// decoded are the objects of manifests.
func decoded(t *testing.T, manifests []byte) []object {
	t.Helper()
	var all []object
	for documents := yaml.NewDecoder(bytes.NewReader(manifests)); ; {
		var o object
		err := documents.Decode(&o)
		if errors.Is(err, io.EOF) {
			return all
		}
		must.OK(t, err)
		all = append(all, o)
	}
}

// edited is a copy of kubernetes with a single file changed.
func edited(t *testing.T, file, before, after string) string {
	t.Helper()
	folder := t.TempDir()
	must.OK(t, os.CopyFS(folder, os.DirFS("kubernetes")))
	text := read(t, filepath.Join("kubernetes", file))
	if !strings.Contains(text, before) {
		t.Fatalf("%s has no %q", file, before)
	}
	must.OK(t, os.WriteFile(filepath.Join(folder, file), []byte(strings.Replace(text, before, after, 1)), 0o600))
	return folder
}

func only(t *testing.T, objects []object, kind string) object {
	t.Helper()
	objects = slices.DeleteFunc(slices.Clone(objects), func(o object) bool { return o.Kind != kind })
	if len(objects) != 1 {
		t.Fatalf("%d objects of kind %s", len(objects), kind)
	}
	return objects[0]
}

// Each connector has everything named by its pods, in a single namespace, with a
// configuration valid with the Secret.
func TestKubernetesManifestsFitTogether(t *testing.T) {
	for _, folder := range connectors {
		t.Run(folder, func(t *testing.T) {
			objects := built(t, "kubernetes/"+folder)
			exists := map[string]bool{}
			for _, o := range objects {
				exists[o.Kind+" "+o.Metadata.Name] = true
				if o.Metadata.Namespace != only(t, objects, "Deployment").Metadata.Namespace {
					t.Errorf("%s is in namespace %q", o.Kind, o.Metadata.Namespace)
				}
			}
			pod := only(t, objects, "Deployment").Spec.Template.Spec
			for _, e := range pod.Containers[0].Env {
				if ref := e.ValueFrom.SecretKeyRef; ref.Name != "" && !exists["Secret "+ref.Name] {
					t.Errorf("there is no Secret %s", ref.Name)
				}
			}
			for _, v := range pod.Volumes {
				if !v.ConfigMap.Optional && !exists["ConfigMap "+v.ConfigMap.Name] {
					t.Errorf("there is no ConfigMap %s", v.ConfigMap.Name)
				}
			}
			file := filepath.Join(t.TempDir(), "config.yaml")
			must.OK(t, os.WriteFile(file, []byte(only(t, objects, "ConfigMap").Data["config.yaml"]), 0o600))
			environ := []string{"SOURCE_URL=postgres://cdc@localhost:5432/app", "SOURCE_PASSWORD=secret", "KAFKA_PASSWORD=secret"}
			if _, err := config.Load(config.Options{File: file, Environ: environ}); err != nil {
				t.Error(err)
			}
			if policy := only(t, objects, "PodDisruptionBudget").Spec.UnhealthyPodEvictionPolicy; policy != "AlwaysAllow" {
				t.Errorf("pods that are not ready hold a drain up: %q", policy)
			}
		})
	}
}

// Failure mode 147. Two connectors in a namespace: neither's Deployment, budget,
// policy or spread takes a pod of the other, or a pod running a verb.
func TestKubernetesConnectorsKeepApart(t *testing.T) {
	pods, names := map[string]map[string]string{}, map[string]string{}
	folders := []string{".", "overlays/second"}
	for _, folder := range folders {
		pods[folder] = only(t, built(t, "kubernetes/"+folder), "Deployment").Spec.Template.Metadata.Labels
	}
	for _, folder := range folders {
		objects := built(t, "kubernetes/"+folder)
		for _, o := range objects {
			if other := names[o.Kind+o.Metadata.Name]; other != "" {
				t.Errorf("%s %s is in %s and %s", o.Kind, o.Metadata.Name, folder, other)
			}
			names[o.Kind+o.Metadata.Name] = folder
		}
		deployment := only(t, objects, "Deployment")
		for what, selects := range map[string]selector{
			"Deployment": deployment.Spec.Selector,
			"spread":     deployment.Spec.Template.Spec.TopologySpreadConstraints[0].LabelSelector,
			"budget":     only(t, objects, "PodDisruptionBudget").Spec.Selector,
			"policy":     only(t, objects, "NetworkPolicy").Spec.PodSelector,
		} {
			for whose, labels := range pods {
				if matches(selects.MatchLabels, labels) != (whose == folder) {
					t.Errorf("%s of %s selects %v, a pod of %s has %v", what, folder, selects, whose, labels)
				}
			}
			if matches(selects.MatchLabels, map[string]string{"app.kubernetes.io/name": "cdc-outbox-verb"}) {
				t.Errorf("%s of %s selects a pod that runs a verb", what, folder)
			}
		}
	}
}

func matches(selector, labels map[string]string) bool {
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return len(selector) > 0
}

// Failure mode 148. A namespace, where others may be, is neither made, labelled
// nor deleted with a connector.
func TestKubernetesConnectorsHaveNoNamespace(t *testing.T) {
	for _, folder := range append(connectors, "base") {
		for _, o := range built(t, "kubernetes/"+folder) {
			if o.Kind == "Namespace" {
				t.Errorf("%s has the namespace %s", folder, o.Metadata.Name)
			}
		}
	}
}

// Failure mode 149. Pods are replaced when their configuration changes, secrets included.
func TestKubernetesChangesRollThePods(t *testing.T) {
	before := only(t, built(t, "kubernetes"), "Deployment").Spec.Template
	for file, change := range map[string][2]string{
		"secret.env":  {"/app?", "/other?"},
		"config.yaml": {"public.outbox", "public.other"},
	} {
		after := only(t, built(t, edited(t, file, change[0], change[1])), "Deployment").Spec.Template
		if string(must.Get(json.Marshal(before))(t)) == string(must.Get(json.Marshal(after))(t)) {
			t.Errorf("another %s leaves the pods as they are", file)
		}
	}
}

// The connector and setup satisfy the pod security level restricted.
func TestKubernetesPodsAreRestricted(t *testing.T) {
	objects := built(t, edited(t, "kustomization.yaml", "# components:", "components:"))
	connector, setup := only(t, objects, "Deployment"), only(t, objects, "Job")
	for _, o := range []object{connector, setup} {
		checkRestricted(t, o)
		container := o.Spec.Template.Spec.Containers[0]
		if container.Image != connector.Spec.Template.Spec.Containers[0].Image || !strings.Contains(container.Image, ":v") {
			t.Errorf("%s runs %s", o.Kind, container.Image)
		}
	}
	if !matchesReferences(connector, setup) {
		t.Error("setup reads another configuration than the connector")
	}
}

// checkRestricted reports a pod beyond the level restricted, or without its own name
// for remedies (failure mode 163).
func checkRestricted(t *testing.T, o object) {
	t.Helper()
	pod := o.Spec.Template.Spec
	container := pod.Containers[0]
	escalates := container.SecurityContext.AllowPrivilegeEscalation
	if !pod.SecurityContext.RunAsNonRoot || pod.SecurityContext.SeccompProfile.Type != "RuntimeDefault" ||
		escalates == nil || *escalates || !slices.Equal(container.SecurityContext.Capabilities.Drop, []string{"ALL"}) {
		t.Errorf("%s: %+v, %+v", o.Kind, pod.SecurityContext, container.SecurityContext)
	}
	fields := map[string]string{}
	for _, e := range container.Env {
		fields[e.Name] = e.ValueFrom.FieldRef.FieldPath
	}
	if fields["POD_NAMESPACE"] != "metadata.namespace" || fields["POD_NAME"] != "metadata.name" {
		t.Errorf("%s does not know its own name: %v", o.Kind, fields)
	}
}

// matchesReferences compares the configuration read by two pods.
func matchesReferences(a, b object) bool {
	return a.Spec.Template.Spec.Volumes[0].ConfigMap == b.Spec.Template.Spec.Volumes[0].ConfigMap
}

// Without SASL there is no kafka-password, and with a private CA nothing else to edit.
func TestKubernetesOptionalParts(t *testing.T) {
	folder := edited(t, "secret.env", "kafka-password=change-me\n", "")
	deployment := only(t, built(t, folder), "Deployment")
	for _, e := range deployment.Spec.Template.Spec.Containers[0].Env {
		if ref := e.ValueFrom.SecretKeyRef; ref.Key == "kafka-password" && !ref.Optional {
			t.Error("a pod without the key kafka-password is not started")
		}
	}
	folder = edited(t, "kustomization.yaml", "  # - name: cdc-outbox-ca # base/deployment.yaml says where it is mounted\n  #   files: [ca.crt]\n",
		"  - name: cdc-outbox-ca\n    files: [ca.crt]\n")
	must.OK(t, os.WriteFile(filepath.Join(folder, "ca.crt"), []byte("certificate"), 0o600))
	volumes := only(t, built(t, folder), "Deployment").Spec.Template.Spec.Volumes
	if ca := volumes[1]; ca.Name != "ca" || !strings.HasPrefix(ca.ConfigMap.Name, "cdc-outbox-ca-") {
		t.Errorf("the volumes are %+v", volumes)
	}
}

// documentOf returns the manifest of the only object of a kind, as built by kubectl.
func documentOf(t *testing.T, kubectl, kind string) string {
	t.Helper()
	out := must.Get(exec.CommandContext(t.Context(), kubectl, "kustomize", "kubernetes").Output())(t)
	for document := range strings.SplitSeq(string(out), "\n---\n") {
		if strings.Contains(document, "\nkind: "+kind+"\n") {
			return document
		}
	}
	t.Fatalf("there is no %s", kind)
	return ""
}
