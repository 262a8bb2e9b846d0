// Package deploy has no code: its tests hold the files beside it to the program
// and the documents they name.
package deploy

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.yaml.in/yaml/v3"

	"github.com/cdc-outbox/cdc-outbox/idempotency"
	consumermetrics "github.com/cdc-outbox/cdc-outbox/idempotency/metrics"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/metrics"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/retention"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

func read(t *testing.T, path string) string {
	t.Helper()
	b := must.Get(os.ReadFile(path))(t)
	return string(b)
}

func TestConfigurationsAreValid(t *testing.T) {
	environ := []string{"SOURCE_URL=postgres://cdc@localhost:5432/app", "SOURCE_PASSWORD=secret", "KAFKA_PASSWORD=secret"}
	for _, file := range []string{"compose/cdc-outbox.yaml", "compose/fleet.yaml", "kubernetes/config.yaml", "kubernetes/overlays/existing-namespace/config.yaml", "kubernetes/overlays/second/config.yaml"} {
		t.Run(file, func(t *testing.T) {
			if _, err := config.Load(config.Options{File: file, Environ: environ}); err != nil {
				t.Error(err)
			}
		})
	}
}

// rule is a rule of a Prometheus rule file.
type rule struct {
	Alert       string
	Record      string
	Expr        string
	Labels      map[string]string
	Annotations map[string]string
}

func rules(t *testing.T, path string) []rule {
	t.Helper()
	var file struct{ Groups []struct{ Rules []rule } }
	must.OK(t, yaml.Unmarshal([]byte(read(t, path)), &file))
	var all []rule
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

func TestEveryAlertHasARunbookAndATest(t *testing.T) {
	tests := read(t, "prometheus/alerts.test.yml")
	for _, r := range rules(t, "prometheus/alerts.yml") {
		if r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s lacks severity, summary or description", r.Alert)
		}
		if !strings.HasSuffix(r.Annotations["runbook_url"], "/docs/runbook/"+r.Alert+".md") {
			t.Errorf("%s has runbook_url %q", r.Alert, r.Annotations["runbook_url"])
		}
		if !strings.HasPrefix(read(t, "../docs/runbook/"+r.Alert+".md"), "# "+r.Alert+"\n") {
			t.Errorf("the page of %s has another title", r.Alert)
		}
		if !strings.Contains(read(t, "../docs/runbook/README.md"), "]("+r.Alert+".md)") {
			t.Errorf("docs/runbook/README.md does not list %s", r.Alert)
		}
		if !strings.Contains(tests, r.Alert) {
			t.Errorf("alerts.test.yml does not mention %s", r.Alert)
		}
	}
}

// A job may have any name.
func TestRulesMatchOnMetricsNotOnAJob(t *testing.T) {
	for _, r := range append(rules(t, "prometheus/rules.yml"), rules(t, "prometheus/alerts.yml")...) {
		if regexp.MustCompile(`\bjob\s*(=|!=)`).MatchString(r.Expr) {
			t.Errorf("%s%s matches on a job: %s", r.Alert, r.Record, r.Expr)
		}
	}
}

// dashboard is the tested part of a Grafana dashboard.
type dashboard struct {
	Panels []struct {
		Title   string
		Targets []struct{ Expr string }
	}
}

// expressions returns Grafana's queries to Prometheus, by panel.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	var d dashboard
	must.OK(t, json.Unmarshal([]byte(read(t, "grafana/dashboards/cdc-outbox.json")), &d))
	variables := strings.NewReplacer("$__rate_interval", "1m", "$job", "cdc-outbox", "$pipeline", ".*")
	exprs := map[string]string{}
	for _, p := range d.Panels {
		for i, target := range p.Targets {
			exprs[fmt.Sprintf("panel %q, query %d", p.Title, i+1)] = variables.Replace(target.Expr)
		}
	}
	return exprs
}

func TestRulesAndDashboardUseMetricsThatExist(t *testing.T) {
	known := exported(t)
	exprs := expressions(t)
	for _, r := range append(rules(t, "prometheus/rules.yml"), rules(t, "prometheus/alerts.yml")...) {
		exprs[r.Alert+r.Record] = r.Expr
		if r.Record != "" {
			known[r.Record] = true
		}
	}
	name := regexp.MustCompile(`\b(?:job:)?(?:cdc_outbox|process|idempotency)_\w+(?::active)?`)
	for where, expr := range exprs {
		for _, metric := range name.FindAllString(expr, -1) {
			if !known[strings.TrimSuffix(metric, "_bucket")] {
				t.Errorf("%s uses %s, which does not exist", where, metric)
			}
		}
	}
}

// A metric is of no use where nobody looks.
func TestDashboardShowsEveryMetric(t *testing.T) {
	var shown strings.Builder
	for _, expr := range expressions(t) {
		shown.WriteString(expr + "\n")
	}
	for name := range exported(t) {
		if strings.HasPrefix(name, "cdc_outbox_") && name != "cdc_outbox_build_info" &&
			!regexp.MustCompile(name+`\b|`+name+"_bucket").MatchString(shown.String()) {
			t.Errorf("no panel shows %s", name)
		}
	}
}

// exported returns the names of the metrics of the connector and of consumers.
func exported(t *testing.T) map[string]bool {
	t.Helper()
	set := metrics.New("", "")
	set.Fleet()
	set.ObserveDiscovery(func() (pipelines, faults int, at time.Time) { return 0, 0, time.Time{} })
	m := set.Pipeline("")
	m.Published([]*transform.Event{{}})
	m.DeadLettered(transform.ReasonNullKey)
	m.Skipped(transform.ReasonNullKey)
	m.Quarantined(transform.ReasonNullKey)
	m.Warned(transform.WarningNotExpanded)
	m.PartitionsGrown("topic")
	m.TopicRemade("topic")
	m.Backlog(1, time.Second)
	m.Connected("kafka", true)
	m.Failover([]catalog.Candidate{{State: catalog.CandidateReady, Behind: new(int64)}})
	m.RetentionDeleted(pg.Table{}, 1)
	m.RetentionPartition(pg.Table{}, retention.Created)
	m.RetentionPassed(pg.Table{}, 1, nil)
	m.RetentionPassed(pg.Table{}, 1, errors.New("locked"))
	names := map[string]bool{}
	for _, g := range []prometheus.Gatherer{set.Gatherer(), consumers(t)} {
		families := must.Get(g.Gather())(t)
		for _, f := range families {
			names[f.GetName()] = true
		}
	}
	return names
}

// consumers returns the metrics of package idempotency, with a single record
// seen.
func consumers(t *testing.T) prometheus.Gatherer {
	t.Helper()
	registry := prometheus.NewRegistry()
	m := must.Get(consumermetrics.New(registry))(t)
	m.ConsumerObserver().Processed(&kgo.Record{Topic: "topic"}, idempotency.Result{Disposition: idempotency.Handled}, nil, 0)
	return registry
}

func TestRulesAndDashboardPassPromtool(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed (Debian: apt-get install prometheus)")
	}
	var panels struct {
		Groups []map[string]any `yaml:"groups"`
	}
	var asRules []map[string]string
	for where, expr := range expressions(t) {
		asRules = append(asRules, map[string]string{"alert": where, "expr": expr})
	}
	panels.Groups = []map[string]any{{"name": "panels", "rules": asRules}}
	b := must.Get(yaml.Marshal(panels))(t)
	dashboard := filepath.Join(t.TempDir(), "panels.yml")
	must.OK(t, os.WriteFile(dashboard, b, 0o600))
	for _, args := range [][]string{
		{"check", "config", "prometheus.yml"},
		{"test", "rules", "alerts.test.yml"},
		{"check", "rules", dashboard},
	} {
		command := exec.Command(promtool, args...)
		command.Dir = "prometheus"
		if out, err := command.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// An image without a version is another tomorrow.
func TestImagesArePinned(t *testing.T) {
	images := map[string]string{}
	for name, s := range services(t) {
		if s.Build.Context == "" {
			images["service "+name] = s.Image
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^FROM (?:--\S+ )?(\S+:\S+)`).FindAllStringSubmatch(read(t, "../Dockerfile"), -1) {
		images["Dockerfile, "+m[1]] = m[1]
	}
	version := regexp.MustCompile(`:v?\d+\.\d+(\.\d+)?`)
	for where, image := range images {
		if !version.MatchString(image) {
			t.Errorf("%s has image %q without a full version", where, image)
		}
	}
	if len(images) < 7 {
		t.Errorf("only %d images found", len(images))
	}
}

func TestEveryMetricIsDocumented(t *testing.T) {
	page := read(t, "../docs/metrics.md")
	for name := range exported(t) {
		shown, connector := strings.CutPrefix(name, "cdc_outbox_")
		if (connector || strings.HasPrefix(name, "idempotency_")) && !regexp.MustCompile("`"+shown+"[`{]").MatchString(page) {
			t.Errorf("docs/metrics.md does not list %s", name)
		}
	}
}

func TestRunbookShowsExpressionsAsTheyAre(t *testing.T) {
	unspaced := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	exprs := map[string]bool{}
	for _, r := range rules(t, "prometheus/alerts.yml") {
		exprs[unspaced(r.Expr)] = true
	}
	shown := 0
	for _, path := range must.Get(filepath.Glob("../docs/runbook/*.md"))(t) {
		for _, b := range regexp.MustCompile("(?s)```promql\n(.*?)```").FindAllStringSubmatch(read(t, path), -1) {
			if shown++; !exprs[unspaced(b[1])] {
				t.Errorf("%s shows what no alert has:\n%s", path, b[1])
			}
		}
	}
	if shown == 0 {
		t.Error("docs/runbook shows none")
	}
}
