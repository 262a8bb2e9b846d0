package deploy

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// chart is the folder of the Helm chart.
const chart = "helm/cdc-outbox"

// charted are the values of testdata/helm, each with the manifests beside it.
var charted = []string{"minimal", "production", "existing", "fleet"}

// inHelm is a go command in the module of Helm and of the Kubernetes API, outside of the
// workspace.
func inHelm(args ...string) *exec.Cmd {
	cmd := exec.Command("go", args...)
	cmd.Dir = "helm"
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	return cmd
}

// helmProgram compiles Helm, in some minutes the first time.
var helmProgram = sync.OnceValues(func() (string, error) {
	out, err := inHelm("tool", "-n", "helm").Output()
	return strings.TrimSpace(string(out)), err
})

// helm is Helm's command; the test is skipped where Helm cannot be had.
func helm(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	if out, err := inHelm("mod", "download").CombinedOutput(); err != nil {
		t.Skipf("Helm cannot be had: %s", out)
	}
	cmd := exec.CommandContext(t.Context(), must.Get(helmProgram())(t), args...)
	home := t.TempDir() // neither plugins nor repositories of the user
	cmd.Env = append(os.Environ(), "HELM_CONFIG_HOME="+home, "HELM_CACHE_HOME="+home, "HELM_DATA_HOME="+home)
	return cmd
}

// template are the manifests of a release in a namespace, as helm install sends them.
func template(t *testing.T, release string, args ...string) []byte {
	t.Helper()
	cmd := helm(t, append([]string{"template", release, chart, "--namespace", "apps", "--kube-version", "1.31.0"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, &stderr)
	}
	return out
}

func values(name string) string { return "testdata/helm/" + name + ".yaml" }

func TestHelmChartIsLinted(t *testing.T) {
	for _, name := range charted {
		if out, err := helm(t, "lint", "--strict", chart, "--values", values(name)).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

func TestHelmTemplatesGiveTheManifests(t *testing.T) {
	for _, name := range charted {
		golden := "testdata/helm/" + name + ".golden.yaml"
		got := template(t, "billing", "--values", values(name))
		if *update {
			must.OK(t, os.WriteFile(golden, got, 0o600))
		}
		if want := read(t, golden); string(got) != want {
			t.Errorf("%s gives other manifests: go test ./deploy -run Helm -update, and look at the difference", name)
		}
	}
}

// The API server would refuse an unknown field, or a value of another type.
func TestHelmManifestsAreOfTheAPI(t *testing.T) {
	strict := filepath.Join(t.TempDir(), "strict")
	helm(t) // skips
	if out, err := inHelm("build", "-o", strict, "./strict").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	decode := func(manifests []byte) ([]byte, error) {
		cmd := exec.CommandContext(t.Context(), strict)
		cmd.Stdin = bytes.NewReader(manifests)
		return cmd.CombinedOutput()
	}
	kinds := map[string]bool{}
	for _, name := range charted {
		out, err := decode(template(t, "billing", "--values", values(name), "--set", "prometheusRule.enabled=true"))
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		for _, kind := range strings.Fields(string(out)) {
			kinds[kind] = true
		}
	}
	for _, file := range must.Get(filepath.Glob(chart + "/templates/*.yaml"))(t) {
		kind := regexp.MustCompile(`(?m)^kind: (\w+)`).FindStringSubmatch(read(t, file))[1]
		if !kinds[kind] {
			t.Errorf("nothing has decoded a %s", kind)
		}
	}
	broken := bytes.Replace(template(t, "billing", "--values", values("minimal")), []byte("maxSurge"), []byte("maxSurges"), 1)
	if out, err := decode(broken); err == nil || !strings.Contains(string(out), "maxSurges") {
		t.Errorf("an unknown field passes: %s", out)
	}
}

// The connector takes the configuration as written by Helm: numbers are whole, and texts
// stay texts.
func TestHelmConfigurationsAreValid(t *testing.T) {
	environ := []string{"SOURCE_URL=postgres://cdc@localhost:5432/app", "SOURCE_PASSWORD=secret", "KAFKA_PASSWORD=secret"}
	secret := filepath.Join(t.TempDir(), "source-password")
	must.OK(t, os.WriteFile(secret, []byte("secret"), 0o600))
	for _, name := range []string{"minimal", "production", "fleet"} {
		objects := decoded(t, template(t, "billing", "--values", values(name)))
		for _, o := range objects {
			if o.Kind != "ConfigMap" {
				continue
			}
			text := strings.ReplaceAll(o.Data["config.yaml"], "/etc/cdc-outbox-secrets/cdc-outbox/source-password", secret)
			text = strings.ReplaceAll(text, "sslrootcert=/etc/cdc-outbox-ca/ca.crt", "sslrootcert=system")
			text = strings.ReplaceAll(text, "/etc/cdc-outbox-ca/ca.crt", secret)
			file := filepath.Join(t.TempDir(), "config.yaml")
			must.OK(t, os.WriteFile(file, []byte(text), 0o600))
			cfg, err := config.Load(config.Options{File: file, Environ: append(variables(t, objects), environ...)})
			must.OK(t, err)
			if !strings.HasPrefix(cfg.HTTP.Listen, ":") {
				t.Errorf("%s: the probes would find %q", name, cfg.HTTP.Listen)
			}
			if name == "production" && (cfg.Sink.Kafka.MaxRecordBytes != 10<<20 || cfg.Sink.Kafka.SASL.Username != "0123") {
				t.Errorf("%d bytes, user %q", cfg.Sink.Kafka.MaxRecordBytes, cfg.Sink.Kafka.SASL.Username)
			}
		}
	}
}

// workload is the Deployment, or a fleet's StatefulSet.
func workload(t *testing.T, objects []object) object {
	t.Helper()
	if slices.ContainsFunc(objects, func(o object) bool { return o.Kind == "StatefulSet" }) {
		return only(t, objects, "StatefulSet")
	}
	return only(t, objects, "Deployment")
}

// variables are those of a pod of the connector: texts as they are, and fields of a pod of
// a cluster before Kubernetes 1.35.
func variables(t *testing.T, objects []object) (all []string) {
	t.Helper()
	fields := map[string]string{"metadata.namespace": "apps", "metadata.name": "billing-cdc-outbox-0", "metadata.labels['topology.kubernetes.io/zone']": ""}
	for _, e := range workload(t, objects).Spec.Template.Spec.Containers[0].Env {
		value := e.Value
		if path := e.ValueFrom.FieldRef.FieldPath; path != "" {
			field, known := fields[path]
			if !known {
				t.Errorf("%s is the unknown field %s", e.Name, path)
			}
			value = field
		}
		if e.Name != "CDC_OUTBOX_CONFIG" {
			all = append(all, e.Name+"="+value)
		}
	}
	return all
}

// A fleet's member has a name that outlasts its pod, and the zone of its node or the
// configuration's.
func TestHelmFleet(t *testing.T) {
	of := func(args ...string) (object, map[string]string) {
		objects := decoded(t, template(t, "billing", append([]string{"--values", values("fleet")}, args...)...))
		set := only(t, objects, "StatefulSet")
		if slices.ContainsFunc(objects, func(o object) bool { return o.Kind == "Deployment" }) {
			t.Error("a fleet has a Deployment, too")
		}
		env := map[string]string{}
		for _, e := range set.Spec.Template.Spec.Containers[0].Env {
			env[e.Name] = e.Value + e.ValueFrom.FieldRef.FieldPath
		}
		return set, env
	}
	const zone = "metadata.labels['topology.kubernetes.io/zone']"
	set, env := of()
	if env["CDC_OUTBOX_FLEET_MEMBER"] != "metadata.name" || env["CDC_OUTBOX_FLEET_RACK"] != zone {
		t.Errorf("a member has the variables %v", env)
	}
	// A rollback replaces the pod of a mistake only if no other pod waits for it.
	if set.Spec.PodManagementPolicy != "Parallel" || set.Spec.ServiceName != "billing-cdc-outbox" {
		t.Errorf("the set is %+v", set.Spec)
	}
	for values, want := range map[string]string{
		"config.fleet.rack=zone-a":                                        "",
		"extraEnv[0].name=CDC_OUTBOX_FLEET_RACK,extraEnv[0].value=zone-a": "zone-a",
		"config=null,existingConfigMap=outbox":                            "",
	} {
		if _, env := of("--set", values); env["CDC_OUTBOX_FLEET_RACK"] != want {
			t.Errorf("with %s the variable of the zone is %q, want %q", values, env["CDC_OUTBOX_FLEET_RACK"], want)
		}
	}
}

// Two releases in a namespace, and the pods of setup, keep apart as the manifests do.
func TestHelmReleasesKeepApart(t *testing.T) {
	releases := map[string][]object{}
	for _, release := range []string{"cdc-outbox", "billing"} {
		releases[release] = decoded(t, template(t, release, "--values", values("production")))
	}
	for release, objects := range releases {
		own := workload(t, objects)
		selectors := map[string]selector{
			own.Kind: own.Spec.Selector,
			"budget": only(t, objects, "PodDisruptionBudget").Spec.Selector,
			"policy": only(t, objects, "NetworkPolicy").Spec.PodSelector,
		}
		for _, spread := range own.Spec.Template.Spec.TopologySpreadConstraints {
			selectors["spread"] = spread.LabelSelector
		}
		for what, selects := range selectors {
			for other, theirs := range releases {
				if matches(selects.MatchLabels, workload(t, theirs).Spec.Template.Metadata.Labels) != (other == release) {
					t.Errorf("%s of %s selects %v", what, release, selects)
				}
				if matches(selects.MatchLabels, only(t, theirs, "Job").Spec.Template.Metadata.Labels) {
					t.Errorf("%s of %s selects the pod of setup", what, release)
				}
			}
		}
	}
}

func TestHelmPodsAreRestricted(t *testing.T) {
	for _, name := range charted {
		for _, o := range decoded(t, template(t, "billing", "--values", values(name))) {
			if o.Kind == "Deployment" || o.Kind == "StatefulSet" || o.Kind == "Job" {
				checkRestricted(t, o)
			}
		}
	}
}

// A mistake is refused before anything is sent, with the remedy.
func TestHelmRefusesMistakes(t *testing.T) {
	for _, tt := range []struct {
		values string
		set    string
		want   []string
	}{
		{"existing", "existingConfigMap=null", []string{"config.source.url is missing", "envFrom", "existingConfigMap"}},
		{"minimal", `config.source.url=`, []string{"config.source.url is missing"}},
		{"existing", "existingConfigMap=null,config.pipelines.orders.source.url=x,config.pipelines.billing.source.slot=y", []string{"config.pipelines.billing.source.url is missing"}},
		{"minimal", "existingConfigMap=other", []string{"config and existingConfigMap are both set"}},
		{"minimal", "config.http.listen=127.0.0.1:80", []string{"config.http.listen", "set port"}},
		{"minimal", "config.errors.drain_timeout=1m10s", []string{"drain_timeout 1m10s", "terminationGracePeriodSeconds to 80"}},
		{"minimal", "terminationGracePeriodSeconds=20", []string{"terminationGracePeriodSeconds to 30"}},
		{"minimal", "config.source.url=postgres://cdc:secret@db/app", []string{"config.source.url has a password", "envFrom"}},
		{"minimal", "config.source.url=host=db password=secret", []string{"config.source.url has a password"}},
		{"minimal", "replicaCount=3", []string{"replicaCount", "not allowed"}},
		{"minimal", "image.tags=v1", []string{"/image", "tags", "not allowed"}},
		{"minimal", "replicas=two", []string{"/replicas", "want integer"}},
		{"minimal", "image.digest=0123", []string{"/image/digest", "does not match"}},
		{"minimal", "config=text", []string{"/config", "want object"}},
		{"minimal", "envFrom=cdc-outbox", []string{"/envFrom", "want array"}},
		{"minimal", "podDisruptionBudget.maxUnavailable=0", []string{"maxUnavailable"}},
		{"minimal", "fleet.enabled=true", []string{"config.fleet.group is missing"}},
		{"fleet", "config.pipelines.orders.errors.drain_timeout=1m", []string{"config.pipelines.orders.errors.drain_timeout 1m", "terminationGracePeriodSeconds to 70"}},
		{"fleet", "fleet.enabled=false", []string{"config.fleet.group is set", "fleet.enabled=true"}},
		{"fleet", "config.fleet.member=a", []string{"config.fleet.member", "name of its pod"}},
		{"fleet", "fleet.group=outbox", []string{"/fleet", "group", "not allowed"}},
		{"fleet", "config.pipelines.orders.source.url=", []string{"config.pipelines.orders.source.url is missing"}},
	} {
		out, err := helm(t, "template", "billing", chart, "--values", values(tt.values), "--set", tt.set).CombinedOutput()
		if err == nil {
			t.Errorf("%s passes", tt.set)
			continue
		}
		must.Contain(t, string(out), tt.want...)
	}
}

// With sources of pipelines elsewhere, the top level needs no database.
func TestHelmTakesDiscoveredPipelines(t *testing.T) {
	for _, from := range []string{"discovery.directory=/etc/pipelines", "pipeline_template.source.url=postgres://cdc@db/%{name}"} {
		got := template(t, "billing", "--values", values("minimal"), "--set-literal", "config.source.url=", "--set-literal", "config."+from)
		if _, value, _ := strings.Cut(from, "="); !strings.Contains(string(got), value) {
			t.Errorf("%s is not in the configuration:\n%s", from, got)
		}
	}
}

// Whoever may read the ConfigMap would see a secret in the configuration.
func TestHelmRefusesSecretsInTheConfiguration(t *testing.T) {
	keys := regexp.MustCompile("(?m)^\\| `([a-z0-9_.]+)` \\| secret \\|").FindAllStringSubmatch(read(t, "../docs/configuration.md"), -1)
	if len(keys) < 10 {
		t.Fatalf("docs/configuration.md has only %d secrets", len(keys))
	}
	for _, m := range keys {
		for _, key := range []string{m[1], "pipelines.orders." + m[1]} {
			secret := "hunter2"
			if strings.HasSuffix(key, "url") {
				secret = "postgres://cdc:hunter2@db/app"
			}
			try := func(value string) (string, error) {
				out, err := helm(t, "template", "billing", chart, "--values", values("minimal"), "--set-literal", "config."+key+"="+value).CombinedOutput()
				return string(out), err
			}
			if out, err := try(secret); err == nil || !strings.Contains(out, "config."+key) || strings.Contains(out, "hunter2") {
				t.Errorf("a secret in %s: %v, %s", key, err, out)
			}
			if out, err := try(strings.ReplaceAll(secret, "hunter2", "${SECRET}")); err != nil {
				t.Errorf("a variable in %s is refused: %s", key, out)
			}
		}
	}
}

// The chart has copies of the files for Prometheus, and makes the operator's rules of them.
func TestHelmHasTheRulesOfPrometheus(t *testing.T) {
	for _, file := range []string{"alerts.yml", "rules.yml"} {
		if read(t, chart+"/files/"+file) != read(t, "prometheus/"+file) {
			t.Errorf("cp deploy/prometheus/%s deploy/%s/files", file, chart)
		}
	}
	type groups struct{ Groups []map[string]any }
	var want groups
	for _, file := range []string{"prometheus/rules.yml", "prometheus/alerts.yml"} {
		var g groups
		must.OK(t, yaml.Unmarshal([]byte(read(t, file)), &g))
		want.Groups = append(want.Groups, g.Groups...)
	}
	var got struct{ Spec groups }
	out := template(t, "billing", "--values", values("minimal"), "--set", "prometheusRule.enabled=true", "--show-only", "templates/prometheusrule.yaml")
	must.OK(t, yaml.Unmarshal(out, &got))
	if !reflect.DeepEqual(got.Spec, want) {
		t.Error("the PrometheusRule differs from deploy/prometheus")
	}
}

// The schema knows each value, and each value of the schema has a default and a comment's
// section.
func TestHelmSchemaHasTheValues(t *testing.T) {
	var defaults map[string]any
	must.OK(t, yaml.Unmarshal([]byte(read(t, chart+"/values.yaml")), &defaults))
	type schema struct {
		AdditionalProperties any
		Properties           map[string]schema
	}
	var s schema
	must.OK(t, json.Unmarshal([]byte(read(t, chart+"/values.schema.json")), &s))
	var compare func(at string, values map[string]any, s schema)
	compare = func(at string, values map[string]any, s schema) {
		if s.AdditionalProperties != false {
			return
		}
		if want, got := slices.Sorted(maps.Keys(values)), slices.Sorted(maps.Keys(s.Properties)); !slices.Equal(got, want) {
			t.Errorf("%s: values.yaml has %v, the schema %v", at, want, got)
		}
		for key, value := range values {
			if section, ok := value.(map[string]any); ok && !strings.HasSuffix(key, "Probe") {
				compare(at+"."+key, section, s.Properties[key])
			}
		}
	}
	delete(s.Properties, "global")
	compare("", defaults, s)
}

// The chart has the version of the release: scripts/tidy.sh sets both.
func TestHelmChartIsOfTheRelease(t *testing.T) {
	release := regexp.MustCompile(`/internal/base (v\S+) =>`).FindStringSubmatch(read(t, "../go.work"))[1]
	var c struct {
		Version    string
		AppVersion string `yaml:"appVersion"`
	}
	must.OK(t, yaml.Unmarshal([]byte(read(t, chart+"/Chart.yaml")), &c))
	if c.AppVersion != release || "v"+c.Version != release {
		t.Errorf("the chart is %+v, the release %s", c, release)
	}
	must.Contain(t, read(t, "../scripts/tidy.sh"), chart+"/Chart.yaml")
}

// Users install the chart from where make publish pushes it.
func TestHelmChartIsPublishedWhereItIsSaidToBe(t *testing.T) {
	makefile := read(t, "../Makefile")
	address := regexp.MustCompile(`\$\(HELM\) push \S+ (oci://\S+)\)`).FindStringSubmatch(makefile)
	_, publish, _ := strings.Cut(makefile, "\npublish:")
	if address == nil || !strings.Contains(publish, "chart PUSH=1") {
		t.Fatal("make publish pushes no chart")
	}
	for _, file := range []string{"../docs/how-to/kubernetes.md", chart + "/README.md", "../.goreleaser.yaml"} {
		must.Contain(t, read(t, file), address[1]+"/cdc-outbox")
	}
}

func TestHelmTakesTheDocumentedValues(t *testing.T) {
	block := regexp.MustCompile("(?s)```(?:yaml)?\n(config:.*?)```")
	for page, want := range map[string]int{"../docs/how-to/kubernetes.md": 1, chart + "/README.md": 2} {
		shown := block.FindAllStringSubmatch(read(t, page), -1)
		if len(shown) != want {
			t.Fatalf("%s shows values %d times, want %d", page, len(shown), want)
		}
		for _, values := range shown {
			file := filepath.Join(t.TempDir(), "values.yaml")
			must.OK(t, os.WriteFile(file, []byte(values[1]), 0o600))
			objects := decoded(t, template(t, "billing", "--values", file))
			configuration := filepath.Join(t.TempDir(), "config.yaml")
			must.OK(t, os.WriteFile(configuration, []byte(objects[slices.IndexFunc(objects, func(o object) bool { return o.Kind == "ConfigMap" })].Data["config.yaml"]), 0o600))
			environ := append(variables(t, objects), "SOURCE_PASSWORD=secret", "KAFKA_PASSWORD=secret")
			if _, err := config.Load(config.Options{File: configuration, Environ: environ}); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
}
