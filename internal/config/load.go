package config

import (
	"context"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

// Options says where Load reads from. There is no other source, except the
// files that the configuration names and, for source.url, what libpq's rules
// add (PGPASSWORD, ~/.pgpass and the like).
type Options struct {
	// File is the path of the YAML file; empty means none. With Text, which is the
	// content then, it is only a name for errors.
	File string
	Text []byte
	// Environ is the environment, as os.Environ returns it: the source of
	// ${VAR} and of CDC_OUTBOX_… overrides.
	Environ []string
	// Set are overrides key=value from the command line; the last of a key wins,
	// over everything else.
	Set []string

	inputs  *inputs    // notes the content read; may be nil
	process *Config    // has the sections of the process, if they are in use already
	root    *yaml.Node // of the file, for the pipelines; nil: it is to be read
}

// Load reads, merges and validates the configuration. Its error is a *Problems
// with all faults, of class failure.Config.
func Load(opts Options) (*Config, error) {
	l := read(opts, nil)
	switch {
	case l.unread:
	case l.cfg.Discovery.On:
		_, l = look(context.Background(), opts, nil)
	case len(l.pipelines) > 0:
		l.loadPipelines(opts)
	default:
		l.keepShared(internalTopics([]*Config{l.cfg}), nil)
		l.validate()
	}
	if err := l.problems.err(); err != nil {
		return nil, err
	}
	return l.cfg, nil
}

// keepShared notes the topics and slots of all connectors, in common: no event may go to such a
// topic.
func (l *loader) keepShared(topics, slots []string) {
	l.cfg.Route.Internal, l.cfg.Source.Slots = topics, slots
}

// Validate reports every faulty value and combination as a *Problems, for a
// Config not made by Load. Validate reads the files the configuration names.
func (c *Config) Validate() error {
	l := &loader{cfg: c, given: map[string]given{}}
	l.validate()
	return l.problems.err()
}

// given is where a key's value came from, and how it was written there.
type given struct {
	origin string
	shown  string
	items  []string // of a list, as they were written
	failed bool     // a problem was reported; the default is still in place
	// written is the value before the reading of files; nil: no files.
	written setting.Written
	// within is the pipeline setting the key; empty for the top level.
	within string
}

// loader merges the layers into cfg and collects the problems.
type loader struct {
	cfg      *Config
	fields   *fields
	environ  map[string]string
	given    map[string]given // by key, sections included
	problems Problems
	unread   bool // the file could not be read: what it would set is unknown
	again    bool // all faults but a pipeline's own have been reported

	file      string         // the configuration file
	root      *yaml.Node     // of the file; nil: empty
	restart   bool           // sections of the process have changed since its start
	inputs    *inputs        // notes the content read; may be nil
	template  *yaml.Node     // pipeline_template of the file; may be nil
	pipelines []pipelineNode // those in the file
	pipeline  string         // the pipeline being read; empty for the top level
}

// read merges defaults, file, environment and flags. Then it does the same for
// a pipeline, unless pipeline is nil.
func read(opts Options, pipeline *pipelineNode) *loader {
	cfg := Default()
	l := &loader{
		cfg:     &cfg,
		fields:  fieldsOf(&cfg),
		environ: environment(opts.Environ),
		given:   map[string]given{},
		file:    opts.File,
		inputs:  opts.inputs,
		again:   pipeline != nil,
	}
	switch {
	case l.again && opts.root != nil:
		l.section(opts.File, "", opts.root)
	case opts.Text != nil:
		l.readYAML(opts.File, opts.Text)
	case opts.File != "":
		l.readFile(opts.File)
	}
	l.readEnvironment(opts.Environ)
	l.readFlags(opts.Set)
	if pipeline != nil {
		l.overlay(opts, *pipeline)
	}
	l.chooseDiscovery()
	l.chooseSink()
	l.chooseTables()
	l.choosePolling()
	l.chooseCompat()
	l.chooseEncoded()
	l.chooseSpans()
	l.keepWritten()
	l.keepProcess(opts.process)
	return l
}

// note remembers where a key's value comes from.
func (l *loader) note(key string, g given) {
	g.within = l.pipeline
	l.given[key] = g
}

// keepProcess keeps the sections in use by the process, if any, and notes a change of these.
func (l *loader) keepProcess(in *Config) {
	if in == nil {
		return
	}
	sections := func(c *Config) []any {
		all := []any{c.Fleet, c.Tracing, c.HTTP, c.Log}
		if kafka := c.Sink.Kafka; in.Fleet.On() && kafka != nil { // the group is in that cluster
			all = append(all, kafka.Brokers, kafka.TLS, kafka.SASL.WithoutFiles())
		}
		return all
	}
	l.restart = !reflect.DeepEqual(sections(l.cfg), sections(in))
	l.cfg.Fleet, l.cfg.Tracing, l.cfg.HTTP, l.cfg.Log = in.Fleet, in.Tracing, in.HTTP, in.Log
}

// keepWritten hands the logins with files to the parts, for later reads.
func (l *loader) keepWritten() {
	logins := map[string]*setting.Files{
		"encoding.registry": &l.cfg.Encoding.Registry.Written,
		"claim_check.s3":    &l.cfg.ClaimCheck.Written,
	}
	if l.cfg.Sink.Kafka != nil {
		logins["sink.kafka.sasl"] = &l.cfg.Sink.Kafka.SASL.Written
	}
	for key, g := range l.given {
		section, name := cutLast(key)
		files := logins[section]
		if files == nil || g.written == nil {
			continue
		}
		if *files == nil {
			*files = setting.Files{}
		}
		(*files)[name] = g.written
	}
}

// noteItems remembers the items of a list as they were written: a substituted
// value may be a secret.
func (l *loader) noteItems(f *field, v value) {
	g := l.given[f.key]
	g.items = slices.Clone(v.list)
	l.given[f.key] = g
}

func environment(environ []string) map[string]string {
	vars := make(map[string]string, len(environ))
	for _, assignment := range environ {
		name, value, _ := strings.Cut(assignment, "=")
		vars[name] = value
	}
	return vars
}

// chooseSink drops the default Kafka sink when another is named, and with it
// the default checkpoint store, which is in Kafka. A pipeline's own sink takes
// the place of the top level's.
func (l *loader) chooseSink() {
	if l.cfg.Sink.Stdout == nil {
		return
	}
	stdout := l.given["sink.stdout"]
	for _, key := range l.fields.all() {
		g, ok := l.given[key]
		if !ok || !strings.HasPrefix(key, "sink.kafka") {
			continue
		}
		switch {
		case g.within == stdout.within:
			l.report("sink.stdout", "is a second sink beside "+l.name(key)+" ("+g.origin+")", "remove one of the two")
			return
		case g.within != "":
			l.cfg.Sink.Stdout = nil
			return
		}
	}
	l.cfg.Sink.Kafka = nil
	if _, set := l.given["checkpoint.store"]; !set {
		l.cfg.Checkpoint.Store = store.StoreNone
	}
}

func (l *loader) add(p Problem) { l.problems.List = append(l.problems.List, p) }

// report adds a problem of a key, unless the key has one already: an unreadable
// value is not judged.
func (l *loader) report(key, text, remedy string) {
	g := l.given[key]
	if g.failed {
		return
	}
	name := key
	if g.within != "" || g.origin == "" {
		name = l.name(key) // not set, or set in the pipeline
	}
	g.failed = true
	l.given[key] = g
	l.add(Problem{Origin: g.origin, Key: name, Value: g.shown, Text: text, Remedy: remedy})
}

// reportError reports an error with its own remedy.
func (l *loader) reportError(key string, err error) {
	remedy := failure.RemedyOf(err)
	if remedy == "" {
		remedy = "see docs/configuration.md"
	}
	l.report(key, err.Error(), remedy)
}

// unknown adds a problem about an unknown key, never with its value, perhaps the
// secret of a mistyped key.
func (l *loader) unknown(origin, key, remedy string) {
	l.add(Problem{Origin: origin, Key: l.name(key), Text: "unknown key", Remedy: remedy})
}
