package transform_test

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

var update = flag.Bool("update", false, "rewrite what the vectors in testdata want")

const vectorFile = "testdata/vectors.yaml"

// vector is an entry of testdata/vectors.yaml. The head of the file explains the
// members.
type vector struct {
	Name    string         `yaml:"name"`
	Rule    string         `yaml:"rule"`
	Event   yaml.Node      `yaml:"event"`
	Route   yaml.Node      `yaml:"route"`
	Columns []vectorColumn `yaml:"columns"`
	Change  []vectorColumn `yaml:"change"`
	Drop    []string       `yaml:"drop"`
	Want    yaml.Node      `yaml:"want"`
}

type vectorColumn struct {
	Name  string  `yaml:"name"`
	Type  string  `yaml:"type"`
	Value *string `yaml:"value"`
}

// outcome is a vector's want: a record, a bad event with the record as far as
// built, or configuration errors. The file has only the differences from the base
// row's outcome.
type outcome struct {
	Topic     string       `yaml:"topic"`
	Key       *string      `yaml:"key"`
	Value     *string      `yaml:"value"`
	Headers   [][2]*string `yaml:"headers"`
	Timestamp string       `yaml:"timestamp"`
	Partition int32        `yaml:"partition"`
	Warning   string       `yaml:"warning"`
	Bad       string       `yaml:"bad"`
	Refused   []refusal    `yaml:"refused"`
}

type refusal struct {
	Error  string `yaml:"error"`
	Remedy string `yaml:"remedy"`
}

// typeOIDs are PostgreSQL's; an enum's OID is the database's own.
var typeOIDs = map[string]uint32{
	"bool": 16, "bytea": 17, "int8": 20, "int2": 21, "int4": 23, "text": 25, "json": 114,
	"float4": 700, "float8": 701, "varchar": 1043, "timestamp": 1114, "timestamptz": 1184,
	"numeric": 1700, "uuid": 2950, "jsonb": 3802, "enum": 16400,
}

var commitTime = time.Date(2026, 8, 1, 12, 0, 0, 250_000_000, time.UTC)

func TestVectors(t *testing.T) {
	doc, base, vectors := readVectors(t)
	for i, v := range vectors {
		t.Run(v.Name, func(t *testing.T) {
			got := v.run(t, base)
			if *update {
				setWant(t, doc, i, difference(t, got, usual(t, base, i)))
				return
			}
			want := usual(t, base, i)
			headers := want.Headers
			want.Headers = nil
			if err := decodeInto(v.Want, &want); err != nil {
				t.Fatalf("decode want: %v", err)
			}
			if want.Headers == nil {
				want.Headers = headers
			}
			if want.Refused != nil {
				want = outcome{Refused: want.Refused}
			}
			if g, w := encode(t, got), encode(t, want); g != w {
				t.Errorf("rule %s\ngot:\n%s\nwant:\n%s", v.Rule, g, w)
			}
		})
	}
	if *update {
		writeVectors(t, doc)
	}
}

// usual is the outcome that the want of vector i is compared with; the first
// vector's want is complete.
func usual(t *testing.T, base []vectorColumn, i int) outcome {
	if i == 0 {
		return outcome{}
	}
	return (&vector{}).run(t, base)
}

// run routes the vector's row.
func (v *vector) run(t *testing.T, base []vectorColumn) outcome {
	cfg := config.Default()
	cfg.Event.PositionHeaders = false
	if err := errors.Join(decodeInto(v.Event, &cfg.Event), decodeInto(v.Route, &cfg.Route)); err != nil {
		t.Fatalf("decode options: %v", err)
	}
	router, err := transform.New(cfg.Event, cfg.Route)
	if err != nil {
		return refused(t, err)
	}
	row := v.row(base)
	if err := router.Bind(row.Relation); err != nil {
		return refused(t, err)
	}
	ev, err := router.Route(row)
	bad, isBad := errors.AsType[*transform.BadEvent](err)
	if err != nil && !isBad {
		t.Fatalf("Route: %v", err)
	}
	return recorded(ev, bad)
}

// row builds the vector's row: its own columns, or the base columns with changes
// and drops.
func (v *vector) row(base []vectorColumn) *pg.Row {
	columns := v.Columns
	if columns == nil {
		columns = changed(base, v.Change, v.Drop)
	}
	rel := &pg.Relation{OID: 16384, Namespace: "public", Name: "outbox"}
	row := &pg.Row{
		Position:   pg.Position{CommitLSN: 0x16B374D848, Seq: 3},
		XID:        777,
		CommitTime: commitTime,
		Relation:   rel,
	}
	for _, c := range columns {
		rel.Columns = append(rel.Columns, pg.Column{Name: c.Name, Type: typeOIDs[c.Type]})
		value := pg.Value{Kind: pg.Null}
		if c.Value != nil {
			value = pg.Value{Kind: pg.Text, Data: []byte(*c.Value)}
		}
		row.Values = append(row.Values, value)
	}
	return row
}

func changed(base, change []vectorColumn, drop []string) []vectorColumn {
	replaced := make(map[string]vectorColumn)
	for _, c := range change {
		replaced[c.Name] = c
	}
	for _, name := range drop {
		replaced[name] = vectorColumn{}
	}
	var out []vectorColumn
	for _, c := range base {
		if r, ok := replaced[c.Name]; ok {
			delete(replaced, c.Name)
			c = r
		}
		if c.Name != "" {
			out = append(out, c)
		}
	}
	for _, c := range change {
		if _, ok := replaced[c.Name]; ok {
			out = append(out, c)
		}
	}
	return out
}

func refused(t *testing.T, err error) outcome {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var out outcome
		for _, e := range joined.Unwrap() {
			out.Refused = append(out.Refused, refused(t, e).Refused...)
		}
		return out
	}
	if class := failure.ClassOf(err); class != failure.Config {
		t.Errorf("class = %v, want Config: %v", class, err)
	}
	return outcome{Refused: []refusal{{err.Error(), failure.RemedyOf(err)}}}
}

func recorded(ev *transform.Event, bad *transform.BadEvent) outcome {
	r := &ev.Record
	out := outcome{
		Topic:     r.Topic,
		Key:       text(r.Key),
		Value:     text(r.Value),
		Timestamp: asked(ev),
		Partition: r.Partition,
		Warning:   string(ev.Warning),
	}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, [2]*string{&h.Key, text(h.Value)})
	}
	if bad != nil {
		out.Bad = bad.Error()
	}
	return out
}

// asked is the record's requested time; "" for the publication's.
func asked(ev *transform.Event) string {
	if ev.Asked.IsZero() {
		return ""
	}
	return ev.Asked.UTC().Format("2006-01-02T15:04:05.000Z")
}

// text keeps null and empty apart.
func text(b []byte) *string {
	if b == nil {
		return nil
	}
	s := string(b)
	return &s
}

func decodeInto(node yaml.Node, v any) error {
	if node.IsZero() {
		return nil
	}
	return node.Decode(v)
}

func readVectors(t *testing.T) (doc *yaml.Node, base []vectorColumn, vectors []vector) {
	data := must.Get(os.ReadFile(vectorFile))(t)
	doc = new(yaml.Node)
	var file struct {
		Base    []vectorColumn `yaml:"base"`
		Vectors []vector       `yaml:"vectors"`
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	decoder.KnownFields(true)
	must.OK(t, errors.Join(yaml.Unmarshal(data, doc), decoder.Decode(&file)))
	return doc, file.Base, file.Vectors
}

func encode(t *testing.T, o outcome) string {
	data := must.Get(yaml.Marshal(o))(t)
	return string(data)
}

// difference is the node of got without the members equal in usual, or the refusal
// alone.
func difference(t *testing.T, got, usual outcome) *yaml.Node {
	if got.Refused != nil {
		usual = got
		usual.Refused = nil
	}
	node, other := toNode(t, got), toNode(t, usual)
	out := &yaml.Node{Kind: yaml.MappingNode}
	for i := 0; i < len(node.Content); i += 2 {
		a, _ := yaml.Marshal(node.Content[i+1])
		b, _ := yaml.Marshal(other.Content[i+1])
		if !bytes.Equal(a, b) {
			out.Content = append(out.Content, node.Content[i], node.Content[i+1])
		}
	}
	if len(out.Content) == 0 {
		out.Style = yaml.FlowStyle
	}
	return out
}

func toNode(t *testing.T, o outcome) *yaml.Node {
	node := new(yaml.Node)
	must.OK(t, node.Encode(o))
	for _, pair := range member(node, "headers").Content {
		pair.Style = yaml.FlowStyle
	}
	return node
}

// setWant replaces the want of a single vector and nothing else.
func setWant(t *testing.T, doc *yaml.Node, i int, want *yaml.Node) {
	entry := member(doc.Content[0], "vectors").Content[i]
	if old := member(entry, "want"); old != nil {
		old.Kind, old.Style, old.Content = want.Kind, want.Style, want.Content
		return
	}
	entry.Content = append(entry.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: "want"}, want)
}

func member(node *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == name {
			return node.Content[i+1]
		}
	}
	return nil
}

func writeVectors(t *testing.T, doc *yaml.Node) {
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	must.OK(t, encoder.Encode(doc))
	must.OK(t, os.WriteFile(vectorFile, out.Bytes(), 0o644))
}
