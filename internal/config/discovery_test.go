package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// folder has a configuration.
type folder struct {
	*testing.T
	path string
}

func inFolder(t *testing.T) folder {
	f := folder{t, t.TempDir()}
	must.OK(t, os.Mkdir(filepath.Join(f.path, "pipelines.d"), 0o700))
	return f
}

func (f folder) write(name, text string) {
	f.Helper()
	must.OK(f, os.WriteFile(filepath.Join(f.path, name), []byte(text), 0o600))
}

func (f folder) remove(name string) {
	f.Helper()
	must.OK(f, os.RemoveAll(filepath.Join(f.path, name)))
}

func (f folder) config() *Config {
	f.Helper()
	return must.Get(Load(Options{File: filepath.Join(f.path, "main.yaml")}))(f)
}

func (f folder) load() *Look {
	f.Helper()
	return f.config().Look
}

// idle are the sources with faults and without any pipeline.
func idle(k *Look) (all []string) {
	for _, p := range k.Parts {
		if p.Idle {
			all = append(all, p.Origin)
		}
	}
	return all
}

// found lists the pipelines as name/slot/topic.
func found(k *Look) string {
	var all []string
	for _, p := range k.Config.Pipelines {
		all = append(all, p.Name+"/"+p.Config.Source.Slot+"/"+p.Config.Route.Topic)
	}
	return strings.Join(all, " ")
}

// faultsOf are the look's, as text.
func faultsOf(k *Look) string {
	if k.Err != nil {
		return k.Err.Error()
	}
	if err := k.Config.Faults(); err != nil {
		return err.Error()
	}
	return ""
}

func pipeline(name, topic string) string {
	return "pipelines: {" + name + ": {route: {topic: " + topic + "}}}"
}

const withDirectory = `
source: {url: "postgres://cdc@localhost/app"}
discovery: {directory: pipelines.d}
pipelines: {own: {route: {topic: t0}}}
`

// Each case changes files after a first look at main.yaml and pipelines.d/a.yaml with the
// pipeline a, b.yaml with b.
func TestFilesOfTheDirectoryComeAndGo(t *testing.T) {
	const before = "own/cdc_outbox_own/t0 a/cdc_outbox_a/t1 b/cdc_outbox_b/t2"
	for _, tt := range []struct {
		name   string
		change func(folder)
		want   string
		faults []string // parts of their texts; none: no fault
	}{
		{"nothing", func(folder) {}, before, nil},
		{"another file", func(f folder) { f.write("pipelines.d/c.yaml", pipeline("c", "t3")) }, before + " c/cdc_outbox_c/t3", nil},
		{"a change", func(f folder) { f.write("pipelines.d/a.yaml", pipeline("a", "new")) },
			"own/cdc_outbox_own/t0 a/cdc_outbox_a/new b/cdc_outbox_b/t2", nil},
		{"a removal", func(f folder) { f.remove("pipelines.d/a.yaml") }, "own/cdc_outbox_own/t0 b/cdc_outbox_b/t2", nil},
		{"a file without any on purpose", func(f folder) { f.write("pipelines.d/a.yaml", "pipelines: {}") }, "own/cdc_outbox_own/t0 b/cdc_outbox_b/t2", nil},
		{"another name of the file", func(f folder) {
			f.remove("pipelines.d/a.yaml")
			f.write("pipelines.d/z.yaml", pipeline("a", "t1"))
		}, "own/cdc_outbox_own/t0 b/cdc_outbox_b/t2 a/cdc_outbox_a/t1", nil},
		{"garbage", func(f folder) { f.write("pipelines.d/a.yaml", "\x00\x01{") }, before, []string{"a.yaml: is not YAML"}},
		{"an empty file", func(f folder) { f.write("pipelines.d/a.yaml", "") }, before, []string{"a.yaml: has no pipelines"}},
		{"an unknown key", func(f folder) { f.write("pipelines.d/a.yaml", "pipelines: {a: {source: {slott: x}}}") }, before,
			[]string{"pipelines.a.source.slott: unknown key", "did you mean pipelines.a.source.slot?"}},
		{"a template there", func(f folder) { f.write("pipelines.d/a.yaml", "pipeline_template: {}") }, before, []string{"pipeline_template: unknown key"}},
		{"a section of the process there", func(f folder) { f.write("pipelines.d/a.yaml", pipeline("a", "t1")+"\nlog: {level: debug}") }, before,
			[]string{"log: unknown key"}},
		{"a file that may not be read", func(f folder) {
			f.remove("pipelines.d/a.yaml")
			must.OK(f, os.Mkdir(filepath.Join(f.path, "pipelines.d/a.yaml"), 0o700))
		}, before, []string{"a.yaml: cannot be read"}},
		{"the name of another", func(f folder) { f.write("pipelines.d/c.yaml", pipeline("a", "t9")) }, before,
			[]string{"pipelines.a: is set twice", "c.yaml", "a.yaml"}},
		{"the slot of another", func(f folder) {
			f.write("pipelines.d/0.yaml", "pipelines: {c: {source: {slot: cdc_outbox_a}}}")
		}, before, []string{"pipelines.c.source.slot", "that of pipeline a too", "that of pipeline c too"}},
		{"the checkpoint of another, by its key", func(f folder) {
			f.write("pipelines.d/0.yaml", "pipelines: {c: {checkpoint: {key: app/cdc_outbox_a}}}")
		}, before, []string{"pipelines.c.checkpoint.key", "that of pipeline a too"}},
		{"the slot of a faulty one", func(f folder) {
			f.write("pipelines.d/a.yaml", "{")
			f.write("pipelines.d/c.yaml", "pipelines: {c: {source: {slot: cdc_outbox_a}}}")
		}, before, []string{"a.yaml: is not YAML", "pipelines.c.source.slot"}},
		{"slots in a ring with a refused one", func(f folder) { // b leaves its slot for that of own, and c takes b's
			f.write("pipelines.d/b.yaml", "pipelines: {b: {source: {slot: cdc_outbox_own}}}")
			f.write("pipelines.d/c.yaml", "pipelines: {c: {source: {slot: cdc_outbox_b}}}")
		}, before, []string{"pipelines.b.source.slot", "pipelines.c.source.slot"}},
		{"slots exchanged", func(f folder) {
			f.write("pipelines.d/a.yaml", "pipelines: {a: {source: {slot: cdc_outbox_b}, route: {topic: t1}}}")
			f.write("pipelines.d/b.yaml", "pipelines: {b: {source: {slot: cdc_outbox_a}, route: {topic: t2}}}")
		}, "own/cdc_outbox_own/t0 a/cdc_outbox_b/t1 b/cdc_outbox_a/t2", nil},
		{"an empty directory", func(f folder) {
			f.remove("pipelines.d/a.yaml")
			f.remove("pipelines.d/b.yaml")
		}, before, []string{"the listing of directory is empty, and was not"}},
		{"no directory", func(f folder) { f.remove("pipelines.d") }, before, []string{"discovery.directory", "no such file or directory"}},
		{"no directory in the file", func(f folder) {
			f.write("main.yaml", strings.Replace(withDirectory, "directory: pipelines.d", "interval: 1s", 1))
		},
			"own/cdc_outbox_own/t0", nil},
		{"editors' files", func(f folder) {
			f.write("pipelines.d/.#c.yaml", "{")
			f.write("pipelines.d/c.yaml~", "{")
		}, before, nil},
		{"the file is garbage", func(f folder) { f.write("main.yaml", "{") }, before, []string{"main.yaml: is not YAML"}},
		{"the file is empty", func(f folder) { f.write("main.yaml", "") }, before, []string{"discovery: is gone"}},
		{"the file is gone", func(f folder) { f.remove("main.yaml") }, before, []string{"main.yaml: cannot be read"}},
		{"the log's level", func(f folder) { f.write("main.yaml", withDirectory+"log: {level: debug}") }, before,
			[]string{"fleet, tracing, http, log or the cluster of the fleet have changed"}},
		{"a fleet", func(f folder) { f.write("main.yaml", withDirectory+"fleet: {group: g}") }, before,
			[]string{"fleet, tracing, http, log or the cluster of the fleet have changed"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := inFolder(t)
			f.write("main.yaml", withDirectory)
			f.write("pipelines.d/a.yaml", pipeline("a", "t1"))
			f.write("pipelines.d/b.yaml", pipeline("b", "t2"))
			first := f.load()
			if got := found(first); got != before || faultsOf(first) != "" {
				t.Fatalf("found %s, faults %s", got, faultsOf(first))
			}
			tt.change(f)
			again := first.Again(t.Context())
			if changed := first.Changed(t.Context()); changed != (found(again) != before || faultsOf(again) != "") && tt.name != "another name of the file" {
				t.Errorf("Changed = %v", changed)
			}
			for range 2 { // the third look sees what the second saw
				if got, faults := found(again), faultsOf(again); got != tt.want || (faults == "") != (tt.faults == nil) {
					t.Errorf("found %s; want %s; faults: %s", got, tt.want, faults)
				}
				for _, want := range tt.faults {
					if !strings.Contains(faultsOf(again), want) {
						t.Errorf("faults lack %q: %s", want, faultsOf(again))
					}
				}
				again = again.Again(t.Context())
			}
		})
	}
}

// A source with two faults, one after the other, keeps its pipelines.
func TestAFaultAfterAnother(t *testing.T) {
	f := inFolder(t)
	f.write("main.yaml", withDirectory)
	look := f.load()
	restart := withDirectory + "log: {level: debug}\n"
	for _, text := range []string{restart, strings.ReplaceAll(restart, "topic:", "topik:")} {
		f.write("main.yaml", text)
		look = look.Again(t.Context())
		if got := found(look); got != "own/cdc_outbox_own/t0" || faultsOf(look) == "" || len(idle(look)) > 0 {
			t.Errorf("found %s; faults: %s; idle: %q", got, faultsOf(look), idle(look))
		}
	}
	if faults := faultsOf(look); !strings.Contains(faults, "topik") {
		t.Errorf("faults: %s", faults)
	}
}

// Of two files in conflict at the start neither runs: nobody knows the right one.
func TestConflictAtTheStart(t *testing.T) {
	f := inFolder(t)
	f.write("main.yaml", withDirectory)
	f.write("pipelines.d/a.yaml", pipeline("a", "t1"))
	f.write("pipelines.d/b.yaml", pipeline("a", "t2"))
	look := f.load()
	if got := found(look); got != "own/cdc_outbox_own/t0" || strings.Count(faultsOf(look), "is set twice") != 2 {
		t.Errorf("found %s; faults: %s", got, faultsOf(look))
	}
}

func TestAHundredFiles(t *testing.T) {
	f := inFolder(t)
	f.write("main.yaml", withDirectory)
	for n := range 100 {
		f.write(fmt.Sprintf("pipelines.d/p%02d.yaml", n), pipeline(fmt.Sprintf("p%02d", n), "t"))
	}
	first := f.load()
	f.write("pipelines.d/p50.yaml", pipeline("p50", "other"))
	again := first.Again(t.Context())
	same := 0
	for i, p := range again.Config.Pipelines {
		if p.Same(first.Config.Pipelines[i]) {
			same++
		}
	}
	if n := len(again.Config.Pipelines); n != 101 || same != 100 || faultsOf(again) != "" {
		t.Errorf("%d pipelines, %d as before; faults: %s", n, same, faultsOf(again))
	}
}

const withTemplate = `
source: {url: "postgres://cdc@localhost/app"}
discovery: {names_file: tenants.csv}
pipeline_template:
  source:
    url: postgres://cdc@%{host}/%{name}
    password: ${file:FOLDER/%{name}.secret}
    tables: ["outbox_%{name}"]
  route: {topic: "%{name}.${routedByValue}"}
`

func TestTemplateIsFilledIn(t *testing.T) {
	f := inFolder(t)
	f.write("main.yaml", strings.ReplaceAll(withTemplate, "FOLDER", f.path))
	f.write("tenants.csv", "name,host\nacme,db1\nzeta,db2.internal\n")
	f.write("acme.secret", "a")
	f.write("zeta.secret", "z")
	look := f.load()
	const before = "acme/cdc_outbox_acme/acme.${routedByValue} zeta/cdc_outbox_zeta/zeta.${routedByValue}"
	if got := found(look); got != before || faultsOf(look) != "" {
		t.Fatalf("found %s; faults: %s", got, faultsOf(look))
	}
	if s := look.Config.Pipelines[1].Config.Source; !strings.HasPrefix(s.URL.Reveal(), "postgres://cdc@db2.internal/zeta?password=z&") || s.Tables[0].Name != "outbox_zeta" {
		t.Errorf("the source is %s, %v", s.URL.Reveal(), s.Tables)
	}

	for _, tt := range []struct{ name, listing, want, fault string }{
		{"one goes", "name,host\nacme,db1\n", "acme/cdc_outbox_acme/acme.${routedByValue}", ""},
		{"a new one without its secret", "name,host\nacme,db1\nzeta,db2.internal\nnew,db3\n", before, "new.secret, which cannot be read"},
		{"a new one with a value with a meaning in a URL", "name,host\nacme,db1\nzeta,db2.internal\nevil,x/app?host=y\n", before, "column host has a value that may not be filled in"},
		{"a new one out of the folder", "name,host\nacme,db1\nzeta,db2.internal\n../../etc,x\n", before, "not a legal pipeline name"},
		{"an empty listing", "name,host\n", before, "the listing of names is empty, and was not"},
		{"an empty file", "", before, "the listing of names is empty, and was not"},
		{"a line too short", "name,host\nacme,db1\nze\n", before, "is not CSV"},
		{"a half-written line", "name,host\nacme,db1\nzeta,db2.int", before, "has no end"},
		{"no names", "host\ndb1\n", before, "has no column name"},
		{"a column twice", "name,host,host\nacme,db1,db2\nzeta,db2.internal,db3\n", before, "has two columns host"},
		{"a column of the template is missing", "name\nacme\n", "acme/cdc_outbox_acme/acme.${routedByValue}", "has %{host}, and the listing has no such column"},
		{"a name twice", "name,host\nacme,db1\nacme,db2\nzeta,db2.internal\n", before, "is set twice"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f.write("tenants.csv", tt.listing)
			again := look
			for range 3 { // a third look sees what the second saw
				again = again.Again(t.Context())
				if got := found(again); got != tt.want {
					t.Errorf("found %s; want %s", got, tt.want)
				}
				if got := faultsOf(again); (got == "") != (tt.fault == "") || !strings.Contains(got, tt.fault) {
					t.Errorf("faults: %s; want %s", got, tt.fault)
				}
				if got := idle(again); (len(got) > 0) != strings.HasPrefix(tt.name, "a new one") {
					t.Errorf("idle: %q", got)
				}
			}
		})
	}
}

const withFiles = `
source: {url: "${file:FOLDER/url}", password: "${file:FOLDER/password}"}
sink:
  kafka:
    tls: {enabled: true}
    sasl: {mechanism: PLAIN, username: "${file:FOLDER/name}", password: "${file:FOLDER/sasl}"}
encoding: {value: {format: json_schema}, registry: {urls: ["https://registry.example.com"], username: u, password: "${file:FOLDER/registry}"}}
discovery: {directory: pipelines.d}
pipelines: {own: {source: {slot: "${file:FOLDER/slot}"}}}
`

// A file read again by each login is no other specification, except for another address. Any
// other file is.
func TestContentsOfFiles(t *testing.T) {
	for _, tt := range []struct {
		file, text string
		same, spec bool
	}{
		{"password", "other", true, true},
		{"url", "postgres://other:x@localhost/first", true, true},
		{"url", "postgres://cdc:y@other/first", false, false},
		{"url", "postgres://cdc:y@localhost/other", false, false},
		{"name", "other", true, true},
		{"sasl", "other", true, true},
		{"registry", "other", true, true},
		{"slot", "other", false, false},
	} {
		f := inFolder(t)
		f.write("main.yaml", strings.ReplaceAll(withFiles, "FOLDER", f.path))
		for _, name := range []string{"password", "name", "sasl", "registry", "slot"} {
			f.write(name, name)
		}
		f.write("url", "postgres://cdc@localhost/first")
		if tt.file == "url" {
			f.write("url", "postgres://cdc:y@localhost/first")
		}
		first := f.load()
		if first.Changed(t.Context()) {
			t.Error("a change without any")
		}
		f.write(tt.file, tt.text)
		if !first.Changed(t.Context()) {
			t.Errorf("%s: no change is seen", tt.file)
		}
		again := first.Again(t.Context())
		if faults := faultsOf(again); faults != "" {
			t.Fatalf("%s: %s", tt.file, faults)
		}
		before, now := first.Config.Pipelines[0], again.Config.Pipelines[0]
		if same, spec := now.Same(before), now.Spec() == before.Spec(); same != tt.same || spec != tt.spec {
			t.Errorf("%s with %s: same %v, same specification for a fleet %v", tt.file, tt.text, same, spec)
		}
	}
}

// A fleet may begin without any pipeline, and refuses those that it cannot move.
func TestDiscoveryInAFleet(t *testing.T) {
	f := inFolder(t)
	f.write("main.yaml", `
source: {url: "postgres://cdc@localhost/app"}
discovery: {directory: pipelines.d}
fleet: {group: outbox-fleet}`)
	first := f.load()
	if got, faults := found(first), faultsOf(first); got != "" || faults != "" {
		t.Fatalf("found %s; faults: %s", got, faults)
	}
	f.write("pipelines.d/a.yaml", pipeline("a", "t1"))
	f.write("pipelines.d/b.yaml", "pipelines: {b: {checkpoint: {store: file, path: /tmp/b}}}")
	again := first.Again(t.Context())
	if got, faults := found(again), faultsOf(again); got != "a/cdc_outbox_a/t1" || !strings.Contains(faults, "pipelines.b.checkpoint.store") {
		t.Errorf("found %s; faults: %s", got, faults)
	}
	f.write("main.yaml", `
source: {url: "postgres://cdc@localhost/app"}
sink: {kafka: {brokers: [other:9092]}}
discovery: {directory: pipelines.d}
fleet: {group: outbox-fleet}`)
	if faults := faultsOf(again.Again(t.Context())); !strings.Contains(faults, "the cluster of the fleet have changed") {
		t.Errorf("faults: %s", faults)
	}
}

func TestDiscoveryIsJudged(t *testing.T) {
	const source = "source: {url: \"postgres://cdc@localhost/app\"}\n"
	for _, tt := range []struct{ yaml, want string }{
		{"discovery: {directori: x}", "did you mean discovery.directory?"},
		{"discovery: {interval: 1ms}", "discovery.interval"},
		{"discovery: {names_file: a, names_query: SELECT 1}\npipeline_template: {}", "is a second listing"},
		{"discovery: {names_file: a}", "there is no template"},
		{"pipeline_template: {}", "has no names"},
		{"pipeline_templat: {}", "did you mean pipeline_template?"},
		{"discovery: {names_file: a}\npipeline_template: &all {source: *all}", "has an alias to a node around it"},
		{"discovery: {names_query: SELECT 1, names_url: 'postgres://u@h/d?sslmode=disable&cdc_outbox_login=x'}\npipeline_template: {}", "which is the connector's own"},
		{"discovery: {names_query: SELECT 1, names_url: 'jdbc:x'}\npipeline_template: {}", "discovery.names_url: is a JDBC URL"},
	} {
		_, err := Load(Options{File: "main.yaml", Text: []byte(source + tt.yaml)})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v; want %s", tt.yaml, err, tt.want)
		}
	}
}
