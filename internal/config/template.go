package config

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

// templateKey has the keys of a pipeline, with %{column} for the values of the listing.
const templateKey = "pipeline_template"

// listedValue matches the allowed values of a listing: no character has a meaning in a URL, a
// path, a reference or a pattern. So a writer of the listing chooses among places of the
// template, and cannot lead the connector elsewhere.
var listedValue = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,199}$`)

// filled are the template's pipelines, a draft for each line of the listing.
func (l *loader) filled(ctx context.Context, opts Options) ([]*draft, error) {
	columns, rows, err := l.readListing(ctx)
	if err != nil {
		return nil, err
	}
	named := slices.Index(columns, "name")
	if named < 0 {
		return nil, failure.Configf("call the column with the pipeline's name so: the first line of the file, or SELECT … AS name",
			"discovery: the listing has no column name, only %s", strings.Join(columns, ", "))
	}
	for i, column := range columns {
		if slices.Contains(columns[:i], column) {
			return nil, failure.Configf("give each column a name of its own", "discovery: the listing has two columns %s", printableKey(column))
		}
	}
	var drafts []*draft
	for _, row := range rows {
		d := &draft{Part: Part{Origin: templateKey + " with " + printableKey(row[named])}}
		node := pipelineNode{name: row[named], node: l.template, path: opts.File, found: true, values: map[string]string{}}
		problem := func(text, remedy string) {
			d.problems.List = append(d.problems.List, Problem{Origin: d.Origin, Text: text, Remedy: remedy})
		}
		for i, column := range columns {
			node.values[column] = row[i]
			if !listedValue.MatchString(row[i]) || strings.Contains(row[i], "..") {
				problem("column "+printableKey(column)+" has a value that may not be filled in",
					"use letters, digits, underscores, dots and dashes")
			}
		}
		if !pipelineName.MatchString(node.name) {
			problem("its name is not a legal pipeline name", "use 1 to 40 lower-case letters, digits or underscores, a letter first; a query may derive it, as in replace(lower(tenant), '-', '_') AS name")
		}
		if len(d.problems.List) == 0 {
			d.nodes = []pipelineNode{node}
		}
		drafts = append(drafts, d)
	}
	return drafts, nil
}

// mostListed bounds the rows of a query: more than any process or fleet can run. A query of
// another table takes no memory for that.
const mostListed = 10_000

// readListing reads the file or asks the database.
func (l *loader) readListing(ctx context.Context) (columns []string, rows [][]string, err error) {
	d := l.cfg.Discovery
	if d.NamesFile != "" {
		path := l.beside(d.NamesFile)
		text, err := l.inputs.readFile(path)
		if err != nil {
			return nil, nil, failure.Configf("create the file, or let the connector read it", "discovery.names_file: %s cannot be read: %s", path, setting.Reason(err))
		}
		if len(text) > 0 && !bytes.HasSuffix(text, []byte("\n")) {
			return nil, nil, failure.Configf("end the last line, too; if a full disk has cut the file short, write the file again", "discovery.names_file: the last line of %s has no end", path)
		}
		all, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
		if err != nil {
			return nil, nil, failure.Configf("write a line of columns, then a line for each pipeline, with commas between the values", "discovery.names_file: %s is not CSV: %w", path, err)
		}
		if len(all) == 0 {
			return []string{"name"}, nil, nil
		}
		return all[0], all[1:], nil
	}
	type listing struct {
		Columns []string
		Rows    [][]string
	}
	var got listing
	text, err := l.inputs.note(ctx, "query "+d.NamesQuery, func(ctx context.Context) ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, d.NamesTimeout)
		defer cancel()
		columns, rows, err := catalog.ReadListing(ctx, d.NamesURL.Reveal(), d.NamesQuery, mostListed)
		if err != nil {
			return nil, err
		}
		slices.SortFunc(rows, slices.Compare) // the server's order may be any
		return json.Marshal(listing{columns, rows})
	})
	if err != nil {
		return nil, nil, &failure.Error{Class: failure.ClassOf(err), Err: fmt.Errorf("discovery.names_query: %w", err),
			Remedy: "run the query in psql as the login of discovery.names_url, within discovery.names_timeout"}
	}
	if err := json.Unmarshal(text, &got); err != nil {
		return nil, nil, err
	}
	return got.Columns, got.Rows, nil
}

// fill returns a copy of the node with values for %{column} in all scalars. unknown is the
// first reference to a column missing in the listing.
func fill(node *yaml.Node, values map[string]string) (filled *yaml.Node, unknown string) {
	node = resolve(node)
	out := *node
	if node.Kind == yaml.ScalarNode {
		out.Value = listedReference.ReplaceAllStringFunc(node.Value, func(reference string) string {
			value, ok := values[reference[2:len(reference)-1]]
			if !ok && unknown == "" {
				unknown = reference
			}
			return value
		})
	}
	out.Content = nil
	for i, child := range node.Content {
		if node.Kind == yaml.MappingNode && i%2 == 0 {
			out.Content = append(out.Content, child) // a key
			continue
		}
		copied, missing := fill(child, values)
		if unknown == "" {
			unknown = missing
		}
		out.Content = append(out.Content, copied)
	}
	return &out, unknown
}

var listedReference = regexp.MustCompile(`%\{[^}]*\}`)
