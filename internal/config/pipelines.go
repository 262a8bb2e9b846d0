package config

import (
	"fmt"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"
	"go.yaml.in/yaml/v3"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/nearest"
)

// Pipeline is a connector among several in a process.
type Pipeline struct {
	// Name is the key under pipelines; empty for a configuration without.
	Name string
	// Config is complete: missing keys of the pipeline come from the top level.
	// Tracing, HTTP and Log are the process's, and Pipelines is empty.
	Config *Config
}

// Same tells whether the specifications are the same: a running pipeline needs no new start.
// Slots and topics of other pipelines are no part of a specification.
func (p Pipeline) Same(other Pipeline) bool {
	return p.Name == other.Name && (p.Config == other.Config || reflect.DeepEqual(p.alone(), other.alone()))
}

// alone is the configuration without the slots and topics of other pipelines, and without
// the contents of files that each login reads again.
func (p Pipeline) alone() Config {
	alone := p.Config.withoutRotated()
	alone.Source.Slots, alone.Route.Internal, alone.Discovery = nil, nil, Discovery{}
	return alone
}

// Sharing tells of a pipeline whether it may not run beside any of these: they have the same
// slot, checkpoint or polled table.
func Sharing(these []Pipeline) (with func(Pipeline) bool) {
	taken := sync.OnceValue(func() map[place]bool {
		all := map[place]bool{}
		for _, p := range these {
			for _, at := range p.Config.places() {
				all[at] = true
			}
		}
		return all
	})
	return func(p Pipeline) bool {
		return slices.ContainsFunc(p.Config.places(), func(at place) bool { return taken()[at] })
	}
}

// Each returns the connectors to run: the pipelines or, where there are none,
// the configuration itself without a name.
func (c *Config) Each() []Pipeline {
	if len(c.Pipelines) == 0 && c.Look == nil {
		return []Pipeline{{Config: c}}
	}
	return c.Pipelines
}

const pipelinesKey = "pipelines"

// pipelineName leaves room for a slot's prefix, and upper case for the
// environment's variables.
var pipelineName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,39}$`)

// processSections are set once for all pipelines.
var processSections = []string{"fleet", "tracing", "http", "log", discoveryKey}

// pipelineNode is a pipeline as a file has it.
type pipelineNode struct {
	name   string
	node   *yaml.Node
	path   string            // of the file
	values map[string]string // of the template; nil outside of it
	found  bool              // outside of the configuration file: not overridden by variables and flags
}

// readPipelines notes the pipelines of the file, in its order.
func (l *loader) readPipelines(path, origin string, node *yaml.Node) {
	node = resolve(node)
	if isNull(node) || l.again {
		return
	}
	l.given[pipelinesKey] = given{origin: origin}
	if node.Kind != yaml.MappingNode {
		l.report(pipelinesKey, "wants a name for each pipeline, got "+shape(node), "write the name, indented, as name: and its keys below it")
		return
	}
	names := map[string]bool{}
	for i := 0; i < len(node.Content); i += 2 {
		name, value := node.Content[i], node.Content[i+1]
		problem := func(text, remedy string) {
			l.add(Problem{
				Origin: at(path, name), Key: printableKey(join(pipelinesKey, name.Value)), Text: text, Remedy: remedy,
			})
		}
		switch {
		case !pipelineName.MatchString(name.Value):
			problem("is not a legal pipeline name", "use 1 to 40 lower-case letters, digits or underscores, a letter first")
		case names[name.Value]:
			problem("is set twice", "keep one")
		default:
			names[name.Value] = true
			l.pipelines = append(l.pipelines, pipelineNode{name: name.Value, node: value, path: path})
		}
	}
}

func (l *loader) pipelineNames() []string {
	names := make([]string, len(l.pipelines))
	for i, p := range l.pipelines {
		names[i] = p.name
	}
	return names
}

// overlay merges a pipeline's own keys over the top level's, whose problems have
// been reported already.
func (l *loader) overlay(opts Options, pipeline pipelineNode) {
	l.problems.List = nil
	l.pipeline = pipeline.name
	l.fields.drop(processSections...)
	if _, given := l.given["source.slot"]; !given {
		l.cfg.Source.Slot += "_" + pipeline.name
	}
	if _, given := l.given["source.publication"]; !given {
		l.cfg.Source.Publication += "_" + pipeline.name
	}
	node := pipeline.node
	if pipeline.values != nil {
		var unknown string
		if node, unknown = fill(node, pipeline.values); unknown != "" {
			l.add(Problem{Origin: at(pipeline.path, pipeline.node), Key: templateKey, Text: "has " + unknown + ", and the listing has no such column",
				Remedy: "use a column of the listing, for example %{name}"})
		}
	}
	l.section(pipeline.path, "", node)
	if pipeline.found {
		return
	}
	l.readVariables()
	for _, assignment := range opts.Set {
		key, text, _ := strings.Cut(assignment, "=")
		if key, ok := strings.CutPrefix(key, l.name("")+"."); ok {
			l.flag(key, text)
		}
	}
}

// name is a key's full path: within the pipeline being read, if any.
func (l *loader) name(key string) string {
	if l.pipeline == "" {
		return key
	}
	within := pipelinesKey + "." + l.pipeline
	if key == "" {
		return within
	}
	return within + "." + key
}

// pipelineOf returns the existing pipeline named by a full path.
func (l *loader) pipelineOf(key string) (name string, ok bool) {
	rest, ok := strings.CutPrefix(key, pipelinesKey+".")
	if !ok {
		return "", false
	}
	name, _, _ = strings.Cut(rest, ".")
	return name, slices.Contains(l.pipelineNames(), name)
}

// suggestPipelineKey is the remedy for a flag without a pipeline's name.
func (l *loader) suggestPipelineKey(key string) string {
	names := l.pipelineNames()
	if len(names) == 0 {
		return "pipelines are named in the file"
	}
	rest := strings.TrimPrefix(key, pipelinesKey+".")
	name, key, _ := strings.Cut(rest, ".")
	if near := nearest.To(name, names); near != "" {
		return "did you mean " + pipelinesKey + "." + near + "." + key + "?"
	}
	return "the file has the pipelines " + strings.Join(names, ", ")
}

// loadPipelines reads each pipeline and judges them, alone and together.
func (l *loader) loadPipelines(opts Options) {
	opts.root = l.root
	var loaders []*loader
	var connectors []*Config
	for _, p := range l.pipelines {
		own := read(opts, &p)
		loaders, connectors = append(loaders, own), append(connectors, own.cfg)
	}
	topics, slots := internalTopics(connectors), slotsOf(connectors)
	for i, own := range loaders {
		own.keepShared(topics, slots)
		own.validatePipeline()
		l.adopt(own.problems)
		l.cfg.Pipelines = append(l.cfg.Pipelines, Pipeline{Name: l.pipelines[i].name, Config: own.cfg})
	}
	l.validateObservability()
	l.validatePipelines()
	l.validateFleet()
}

// adopt adds a pipeline's problems. A problem of a key at the top level belongs
// to every pipeline and is added once.
func (l *loader) adopt(found Problems) {
	for _, p := range found.List {
		if !slices.Contains(l.problems.List, p) {
			l.problems.List = append(l.problems.List, p)
		}
	}
}

// place is a resource for a single pipeline.
type place struct {
	key, value string
	within     string // where value is among others; may be secret
	remedy     string
}

// polled are the tables of a pipeline as places: no two pipelines may poll the
// same table.
func (c *Config) polled() (all []place) {
	for _, table := range c.Source.Tables {
		all = append(all, place{"source.tables", table.String(), c.Source.URL.Reveal(),
			"name each polled table in one pipeline: a row is published by the one that marks it, and by no other"})
	}
	return all
}

const checkpointKey = "checkpoint.key"

// StoreKey names the pipeline's checkpoint in the store, and at the brokers its transactions:
// database/slot, unless checkpoint.key is set.
func (c *Config) StoreKey() (string, error) {
	if c.Checkpoint.Key != "" {
		return c.Checkpoint.Key, nil
	}
	url, err := pgconn.ParseConfig(c.Source.URL.Reveal())
	if err != nil {
		return "", fmt.Errorf("source.url: %w", err)
	}
	database := url.Database
	if database == "" {
		database = url.User // PostgreSQL's default
	}
	return database + "/" + c.Source.Slot, nil
}

// slotsOf are the slots of all connectors.
func slotsOf(connectors []*Config) (slots []string) {
	for _, c := range connectors {
		if c.Source.Mode != ModePoll {
			slots = append(slots, c.Source.Slot)
		}
	}
	return slots
}

// Siblings are the slots of the process's other pipelines.
func (s *Source) Siblings() []string {
	return slices.DeleteFunc(slices.Clone(s.Slots), func(slot string) bool { return slot == s.Slot })
}

// places are a pipeline's.
func (c *Config) places() (all []place) {
	if c.Source.Mode == ModePoll {
		all = c.polled()
	} else {
		all = append(all, place{"source.slot", c.Source.Slot, "", "give each pipeline a slot of its own, in all databases"})
	}
	if c.Checkpoint.Store == store.StoreFile {
		all = append(all, place{"checkpoint.path", filepath.Clean(c.Checkpoint.Path), "", "give each pipeline a file of its own"})
	}
	if key, err := c.StoreKey(); err == nil && (c.Checkpoint.Key != "" || c.Source.Mode != ModePoll) {
		all = append(all, place{checkpointKey, key, "", "leave it out: the default names database and slot"})
	}
	return all
}

// validatePipelines finds pipelines with the same slot, checkpoint or table.
func (l *loader) validatePipelines() {
	var all []claim
	for _, p := range l.cfg.Pipelines {
		all = append(all, claim{Pipeline: p})
	}
	for _, found := range clashes(all) {
		l.add(found.problem)
	}
}
