package config

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

// Discovery says where pipelines come from, beside the section pipelines of the file. With
// any of its keys set, pipelines come and go while the process runs.
type Discovery struct {
	// Interval is the time between two looks at the sources of pipelines: the file, the
	// directory, the listing, and the files in ${file:…}.
	Interval time.Duration `yaml:"interval"`
	// Directory has files *.yaml, each with a section pipelines; empty for none. A relative
	// path is relative to the configuration file.
	Directory string `yaml:"directory"`
	// NamesFile and NamesQuery list what pipeline_template is filled in with: a CSV file with
	// a first line of columns, or a query; at most one. Column name is the pipeline's name.
	NamesFile  string `yaml:"names_file"`
	NamesQuery string `yaml:"names_query" substitute:"no"`
	// NamesURL is the database for NamesQuery; by default source.url.
	NamesURL setting.Secret `yaml:"names_url"`
	// NamesTimeout bounds NamesQuery.
	NamesTimeout time.Duration `yaml:"names_timeout"`

	// On: any key is set.
	On bool `yaml:"-"`
}

// DefaultDiscovery are the options of an empty section.
func DefaultDiscovery() Discovery {
	return Discovery{Interval: 5 * time.Second, NamesTimeout: 10 * time.Second}
}

const discoveryKey = "discovery"

// chooseDiscovery turns the discovery on.
func (l *loader) chooseDiscovery() {
	for key := range l.given {
		l.cfg.Discovery.On = l.cfg.Discovery.On || strings.HasPrefix(key, discoveryKey+".")
	}
	l.cfg.Discovery.On = l.cfg.Discovery.On || l.template != nil
}

func (l *loader) validateDiscovery() {
	d, report := &l.cfg.Discovery, l.reporter()
	report.Between("discovery.interval", d.Interval, 100*time.Millisecond, time.Hour)
	report.Between("discovery.names_timeout", d.NamesTimeout, 100*time.Millisecond, 10*time.Minute)
	lists := d.NamesFile != "" || d.NamesQuery != ""
	switch {
	case d.NamesFile != "" && d.NamesQuery != "":
		l.report("discovery.names_query", "is a second listing beside discovery.names_file", "keep one")
	case lists && l.template == nil:
		l.report(discoveryKey, "lists names, and there is no template to fill in", "add pipeline_template with the keys of a pipeline")
	case !lists && l.template != nil:
		l.report(templateKey, "has no names to be filled in with", "set discovery.names_file or discovery.names_query")
	case d.NamesQuery != "":
		l.namesURL()
	}
}

// namesURL judges and completes the URL of the listing: its own, or that of the source.
func (l *loader) namesURL() {
	const key = "discovery.names_url"
	d, s := &l.cfg.Discovery, &l.cfg.Source
	own := d.NamesURL != ""
	if !own {
		d.NamesURL = s.URL
	}
	if err := checkURL(d.NamesURL); err != nil {
		l.reportError(key, err)
		return
	}
	if !own {
		l.login()
		d.NamesURL = s.URL
		return
	}
	login := catalog.Login{URL: l.given[key].written}
	if !hasPassword(d.NamesURL.Reveal()) {
		login.Auth = s.Auth
	}
	d.NamesURL = l.withLogin(key, "source.auth", d.NamesURL, login)
}

// Part is a source of pipelines with a fate of its own: the section pipelines of the file, a
// file of the directory, a line of the listing, or a listing that failed.
type Part struct {
	// Origin names the source.
	Origin string
	// Pipelines are to run: those of before while the source has a fault.
	Pipelines []Pipeline
	// Err has the faults of the source, with remedies; nil without any.
	Err error
	// Beside are pipelines of other parts that go on in spite of Err: those of a listing.
	Beside []Pipeline
	// Idle: because of Err no pipeline of the source is to run.
	Idle bool

	list string // the listing with the part
}

// Look is the content of all sources of pipelines at a time.
type Look struct {
	// Config has the pipelines of all parts.
	Config *Config
	Parts  []Part
	// Err has the faults of the file itself: Config and Parts are of an earlier look then.
	Err error

	opts   Options
	inputs *inputs
}

// Changed tells whether any source has changed since the look.
func (k *Look) Changed(ctx context.Context) bool { return k.inputs.changed(ctx) }

// Again looks at the sources again. A faulty source has the pipelines of before, as has a
// listing that fails, or is empty and was not.
func (k *Look) Again(ctx context.Context) *Look {
	again, l := look(ctx, k.opts, k.Parts)
	if again.Err = l.problems.err(); again.Err != nil {
		again.Config, again.Parts = k.Config, k.Parts
	}
	return again
}

// Faults joins the errors of the parts, if any.
func (c *Config) Faults() error {
	if c.Look == nil {
		return nil
	}
	var errs []error
	for _, p := range c.Look.Parts {
		errs = append(errs, p.Err)
	}
	return failure.Join(errs...)
}

// look reads all. last are the parts of the look before.
func look(ctx context.Context, opts Options, last []Part) (*Look, *loader) {
	opts.inputs = &inputs{}
	l := read(opts, nil)
	k := &Look{Config: l.cfg, opts: opts, inputs: opts.inputs}
	l.cfg.Look = k
	if opts.process == nil {
		k.opts.process = l.cfg
	}
	if l.unread {
		return k, l
	}
	if !l.cfg.Discovery.On {
		l.report(discoveryKey, "is gone", "put it back; without the section, restart the process: pipelines are then those of the file alone")
	}
	l.validateObservability()
	l.validateFleet()
	l.validateDiscovery()
	if len(l.problems.List) > 0 {
		return k, l
	}
	opts.root = l.root
	k.Parts = l.parts(ctx, opts, last)
	for _, p := range k.Parts {
		l.cfg.Pipelines = append(l.cfg.Pipelines, p.Pipelines...)
	}
	if l.restart {
		k.Parts = append(k.Parts, Part{Origin: opts.File, Beside: l.cfg.Pipelines, Err: failure.Configf("restart the process when it suits", "fleet, tracing, http, log or the cluster of the fleet have changed, and are read at the start only")})
	}
	return k, l
}

// draft is a part in the making.
type draft struct {
	Part
	nodes    []pipelineNode
	loaders  []*loader
	problems Problems
	before   *Part // with the same origin, at the look before; may be nil
}

// Listings of parts.
const (
	inFile      = "file"
	inDirectory = "directory"
	inNames     = "names"
)

// parts reads each part, and judges them, alone and together.
func (l *loader) parts(ctx context.Context, opts Options, last []Part) []Part {
	drafts := []*draft{{Part: Part{Origin: opts.File, list: inFile}, nodes: l.pipelines}}
	if l.cfg.Discovery.Directory != "" {
		drafts = append(drafts, l.listed(inDirectory, last, l.directory)...)
	}
	if l.template != nil {
		drafts = append(drafts, l.listed(inNames, last, func() ([]*draft, error) { return l.filled(ctx, opts) })...)
	}
	known, seen := map[string]*Part{}, map[string]bool{}
	for i := range last {
		if len(last[i].Pipelines) > 0 { // a name listed twice has two parts, of which the second has none
			known[last[i].Origin] = &last[i]
		}
	}
	for _, d := range drafts {
		if d.before = known[d.Origin]; seen[d.Origin] { // a name listed twice
			d.before, d.Beside = nil, d.before.pipelines()
		}
		seen[d.Origin] = true
		for _, node := range d.nodes {
			own := read(opts, &node)
			d.loaders = append(d.loaders, own)
			d.Pipelines = append(d.Pipelines, Pipeline{Name: node.name, Config: own.cfg})
		}
	}
	judge(drafts)
	parts := make([]Part, len(drafts))
	for i, d := range drafts {
		if err := d.problems.err(); err != nil {
			d.Err = err
		}
		d.Idle = d.Err != nil && len(d.Pipelines)+len(d.Beside) == 0
		parts[i] = d.Part
	}
	return parts
}

// listed are the drafts of a listing; or the parts of before, and another with the error,
// after a failure of the listing, or an empty listing after a full one.
func (l *loader) listed(list string, last []Part, read func() ([]*draft, error)) []*draft {
	drafts, err := read()
	var before []*draft
	for _, p := range last {
		if p.list == list && len(p.Pipelines) > 0 {
			p.Err = nil
			before = append(before, &draft{Part: p})
		}
	}
	if err == nil && len(drafts) == 0 && len(before) > 0 {
		err = failure.Configf("to remove the last pipelines, too, take the key out of the file; an empty listing may be that of a volume that is not there, or of a right that was revoked",
			"discovery: the listing of %s is empty, and was not: its pipelines go on", list)
	}
	if err == nil {
		for _, d := range drafts {
			d.list = list
		}
		return drafts
	}
	failed := &draft{Part: Part{Origin: "listing of " + list, Err: err}}
	for _, d := range before {
		failed.Beside = append(failed.Beside, d.Pipelines...)
	}
	return append(before, failed)
}

// pipelines are those of a part, which may be nil.
func (p *Part) pipelines() []Pipeline {
	if p == nil {
		return nil
	}
	return p.Pipelines
}

// directory reads the files of the directory.
func (l *loader) directory() ([]*draft, error) {
	path := l.beside(l.cfg.Discovery.Directory)
	names, err := l.inputs.note(context.Background(), "directory "+path, func(context.Context) ([]byte, error) {
		entries, err := os.ReadDir(path)
		var names []string
		for _, e := range entries {
			if name := e.Name(); strings.HasSuffix(name, ".yaml") && !strings.HasPrefix(name, ".") {
				names = append(names, name)
			}
		}
		return []byte(strings.Join(names, "\n")), err
	})
	if err != nil {
		return nil, failure.Configf("create the directory, or let the connector read it; its pipelines go on",
			"discovery.directory: %s cannot be read: %s", path, setting.Reason(err))
	}
	var drafts []*draft
	for name := range strings.SplitSeq(string(names), "\n") {
		if name != "" {
			drafts = append(drafts, l.fragment(filepath.Join(path, name)))
		}
	}
	return drafts, nil
}

// beside is a path relative to the configuration file.
func (l *loader) beside(path string) string {
	if filepath.IsAbs(path) || l.file == "" {
		return path
	}
	return filepath.Join(filepath.Dir(l.file), path)
}

// fragment reads a file of the directory.
func (l *loader) fragment(path string) *draft {
	d := &draft{Part: Part{Origin: path}}
	f := &loader{cfg: l.cfg, fields: &fields{}, given: map[string]given{}, inputs: l.inputs}
	text, err := l.inputs.readFile(path)
	if err != nil {
		f.add(Problem{Origin: path, Text: "cannot be read: " + setting.Reason(err), Remedy: "let the connector read the file"})
	} else {
		f.readYAML(path, text)
	}
	if f.template != nil {
		f.unknown(at(path, f.template), templateKey, "write the template in the configuration file")
	}
	if _, given := f.given[pipelinesKey]; !given && len(f.problems.List) == 0 {
		f.add(Problem{Origin: path, Text: "has no pipelines", Remedy: "write them below pipelines:, as in the configuration file; pipelines: {} for none"})
	}
	d.nodes, d.problems = f.pipelines, f.problems
	for i := range d.nodes {
		d.nodes[i].path, d.nodes[i].found = path, true
	}
	return d
}

// judge judges the drafts, alone and together. A draft with a problem has the pipelines of
// before, and so has each of two drafts in conflict: a running pipeline goes on, and of two
// unknown pipelines none begins.
func judge(drafts []*draft) {
	var connectors []*Config
	for _, d := range drafts {
		for _, p := range d.Pipelines {
			connectors = append(connectors, p.Config)
		}
	}
	topics, slots := internalTopics(connectors), slotsOf(connectors)
	for _, d := range drafts {
		for _, own := range d.loaders {
			own.keepShared(topics, slots)
			own.validatePipeline()
			d.adopt(own.problems)
		}
		d.fall()
	}
	for again := true; again; {
		again = false
		all := claims(drafts)
		reversed := slices.Clone(all)
		slices.Reverse(reversed)
		for _, found := range append(clashes(all), clashes(reversed)...) {
			d := drafts[found.of.part]
			again = again || len(d.problems.List) == 0
			found.problem.Text += " (" + drafts[found.with.part].Origin + ")"
			d.adopt(Problems{List: []Problem{found.problem}})
		}
		for _, d := range drafts {
			d.fall()
		}
	}
}

// fall takes the pipelines of before if there is a problem.
func (d *draft) fall() {
	if len(d.problems.List) == 0 {
		return
	}
	d.Pipelines = d.before.pipelines()
}

func (d *draft) adopt(found Problems) {
	for _, p := range found.List {
		if !slices.Contains(d.problems.List, p) {
			d.problems.List = append(d.problems.List, p)
		}
	}
}

// claims lists the pipelines with their parts.
func claims(drafts []*draft) (all []claim) {
	for i, d := range drafts {
		for _, p := range d.Pipelines {
			all = append(all, claim{p, i})
		}
	}
	return all
}

// claim is a pipeline of a part.
type claim struct {
	Pipeline
	part int
}

// clash is a problem of a pipeline with an earlier one.
type clash struct {
	of, with claim
	problem  Problem
}

// clashes finds pipelines in conflict, and blames the later ones.
func clashes(all []claim) (found []clash) {
	taken, names := map[place]claim{}, map[string]claim{}
	blame := func(of, with claim, key, value, text, remedy string) {
		found = append(found, clash{of, with, Problem{Key: join(pipelinesKey, of.Name) + key, Value: value, Text: text, Remedy: remedy}})
	}
	for _, p := range all {
		if other, ok := names[p.Name]; ok {
			blame(p, other, "", "", "is set twice", "give each pipeline a name of its own")
		}
		names[p.Name] = p
		for _, at := range p.Config.places() {
			other, ok := taken[at]
			if ok && (at.key != checkpointKey || p.Config.Checkpoint.Key+other.Config.Checkpoint.Key != "") { // or the slot says so already
				blame(p, other, "."+at.key, fmt.Sprintf("%q", at.value), "is that of pipeline "+other.Name+" too", at.remedy)
			}
			taken[at] = p
		}
	}
	for _, p := range all {
		if p.Config.Retention.After == 0 || p.Config.Source.Mode == ModePoll {
			continue
		}
		for _, at := range p.Config.polled() {
			if other, ok := taken[at]; ok {
				blame(p, other, ".retention.after", fmt.Sprintf("%q", p.Config.Retention.After),
					"is for rows of "+at.value+" that pipeline "+other.Name+", which polls, may not have published",
					"set it to 0s here, and source.poll.after_publish: delete there")
			}
		}
	}
	return found
}
