package debezium

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/transform"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

const (
	setsOfMode  = 90
	leastPairs  = 10_000
	leastSets   = 400
	shownOfKind = 12
)

// recordModes are options of the connector, some of modes.
var recordModes = []string{"default", "text", "double", "iso_int", "nanos"}

// Whole records, ours against Debezium's: generated rows under generated options. Each
// difference is one of those in differences.
func TestE2ERecords(t *testing.T) {
	url := pgtest.Shared(t).NewDatabase(t)
	r := rand.New(rand.NewPCG(1, 2))
	pgtest.Exec(t, url, createRecordTables()...)
	for _, mode := range recordModes {
		pgtest.Exec(t, url, `SELECT pg_create_logical_replication_slot('`+mode+`', 'pgoutput')`)
	}
	pgtest.Exec(t, url, `SELECT pg_create_logical_replication_slot('ours', 'pgoutput')`)
	insertRecords(t, url, r)

	sources := map[string][]*pg.Row{"log": streamedRows(t, url), "table": tableRows(t, url)}
	described := describeTables(t, url)
	result := &comparison{counts: map[string]int{}, shown: map[string]bool{}}
	for n, mode := range recordModes {
		sets := map[string]optionSet{}
		asked := request{Connector: connection(t, url, mode, "p"), End: "finis", Sets: map[string]set{}}
		maps.Copy(asked.Connector, modes[mode])
		handling := handlingOf(t, modes[mode])
		if n > 0 {
			asked.Connector["extended.headers.enabled"] = "false"
		} else {
			handling.TopicPrefix = "server"
		}
		for i := range setsOfMode {
			name := fmt.Sprintf("%s-%d", mode, i)
			s := generateSet(r, handling)
			s.event.Debezium.TopicPrefix, s.event.Debezium.ExtendedHeaders = "server", n == 0
			sets[name], asked.Sets[name] = s, s.set
		}
		theirs := map[string]record{}
		for _, rec := range asked.run(t) {
			theirs[rec.Set+" "+rec.Row] = rec
		}
		for name, s := range sets {
			result.sets++
			for source, rows := range sources {
				result.compare(t, name+" "+source, s, described, rows, func(id string) (record, bool) {
					rec, ok := theirs[name+" "+id]
					return rec, ok
				})
			}
		}
	}
	result.report(t, serverVersion(t, url))
}

func serverVersion(t *testing.T, url string) (version string) {
	conn := must.Get(pgx.Connect(t.Context(), url))(t)
	defer catalog.Close(conn)
	must.OK(t, conn.QueryRow(t.Context(), "SHOW server_version").Scan(&version))
	return version
}

// insertRecords leaves out rows refused by PostgreSQL.
func insertRecords(t *testing.T, url string, r *rand.Rand) {
	t.Helper()
	conn := must.Get(pgx.Connect(t.Context(), url))(t)
	defer catalog.Close(conn)
	for _, statement := range writeRows(r) {
		_, err := conn.Exec(t.Context(), statement)
		if err != nil && !strings.Contains(statement, "r_json") && !strings.Contains(statement, "r_bytea") {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	must.Get(conn.Exec(t.Context(), `INSERT INTO finis VALUES (1)`))(t)
}

// streamedRows reads the log as the connector does.
func streamedRows(t *testing.T, url string) (rows []*pg.Row) {
	t.Helper()
	c := must.Get(pgconn.ParseConfig(url))(t)
	c.RuntimeParams["replication"] = "database"
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn := must.Get(pgconn.ConnectConfig(ctx, c))(t)
	stream := must.Get(wal.Open(ctx, conn, wal.Options{Slot: "ours", Publication: "p", StatusInterval: time.Second, LivenessTimeout: time.Minute}))(t)
	defer func() { must.OK(t, stream.Close(ctx)) }()
	for {
		msg := must.Get(stream.Next(ctx))(t)
		switch {
		case msg.Kind != wal.Insert:
			continue
		case msg.Row.Relation.Name == "finis":
			return rows
		}
		rows = append(rows, copyOf(&msg.Row))
	}
}

func copyOf(row *pg.Row) *pg.Row {
	out := *row
	out.Values = slices.Clone(row.Values)
	for i := range out.Values {
		out.Values[i].Data = bytes.Clone(out.Values[i].Data)
	}
	return &out
}

// tableRows reads the tables, as polling and snapshots do.
func tableRows(t *testing.T, url string) (rows []*pg.Row) {
	t.Helper()
	conn := must.Get(catalog.Connect(t.Context(), url))(t)
	defer catalog.Close(conn)
	for _, table := range recordTables {
		name := pg.Table{Schema: "public", Name: table.name}
		rel, _, err := catalog.ReadColumns(t.Context(), conn, name)
		must.OK(t, err)
		must.OK(t, catalog.ReadSnapshot(t.Context(), conn, catalog.Snapshot{Table: name, Relation: rel}, func(row *pg.Row) error {
			rows = append(rows, copyOf(row))
			return nil
		}))
	}
	return rows
}

// describeTables reads the catalogs as run does.
func describeTables(t *testing.T, url string) (out []*pg.Relation) {
	t.Helper()
	conn := must.Get(catalog.Connect(t.Context(), url))(t)
	defer catalog.Close(conn)
	for _, table := range recordTables {
		rel, _, err := catalog.ReadColumns(t.Context(), conn, pg.Table{Schema: "public", Name: table.name})
		must.OK(t, err)
		out = append(out, rel)
	}
	return out
}

// comparison counts pairs of records.
type comparison struct {
	sets, refused int
	pairs         int
	counts        map[string]int // of explained differences, by reason
	unexplained   []string
	shown         map[string]bool
}

// compare routes the rows under the options.
func (c *comparison) compare(t *testing.T, name string, s optionSet, described []*pg.Relation, rows []*pg.Row, theirs func(id string) (record, bool)) {
	t.Helper()
	ours, err := transform.New(s.event, s.route)
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	for _, rel := range described {
		ours.Describe(rel)
	}
	for _, row := range rows {
		if err := ours.Bind(row.Relation); err != nil {
			c.refused++
			continue
		}
		id := string(row.Values[0].Data)
		want, ok := theirs(id)
		if !ok {
			t.Fatalf("%s: Debezium has nothing of row %s", name, id)
		}
		c.pairs++
		ev, err := ours.Route(row)
		got := ourRecord(ev, err)
		reason := "equal"
		expected := want.plain(t)
		if got.timestamp == 0 && time.Since(time.UnixMilli(expected.timestamp)).Abs() < time.Hour {
			expected.timestamp = 0 // of the publication
		}
		if got != expected {
			reason = explain(s, got, expected)
		}
		if reason == "" && !c.shown[name] {
			c.shown[name] = true
			c.unexplained = append(c.unexplained, fmt.Sprintf("%s %s: %v\nrow      %s\nours     %+v\nDebezium %+v", name, id, s.set, shownRow(row), got, expected))
		}
		if reason == "" {
			reason = "unexplained"
		}
		c.counts[reason]++
	}
}

func shownRow(row *pg.Row) string {
	var out strings.Builder
	for i, c := range row.Relation.Columns {
		if v := row.Values[i]; v.Kind != pg.Null && len(v.Data) < 300 {
			fmt.Fprintf(&out, "%s=%q ", c.Name, v.Data)
		}
	}
	return out.String()
}

// plainRecord is a record for comparisons.
type plainRecord struct {
	topic, key, value, headers string // NULL for null
	timestamp                  int64  // 0: of the publication
	partition                  int32
	failure                    string
}

const null = "\x00NULL"

func orNull(data []byte) string {
	if data == nil {
		return null
	}
	return string(data)
}

func ourRecord(ev *transform.Event, err error) plainRecord {
	out := plainRecord{topic: ev.Record.Topic, key: orNull(ev.Record.Key), value: orNull(ev.Record.Value), partition: ev.Record.Partition}
	for _, h := range ev.Record.Headers {
		out.headers += fmt.Sprintf("%q=%q ", h.Key, orNull(h.Value))
	}
	if !ev.Asked.IsZero() {
		out.timestamp = ev.Asked.UnixMilli()
	}
	if err != nil {
		out.failure = err.Error()
	}
	return out
}

func (r record) plain(t *testing.T) plainRecord {
	decoded := func(s *string) string {
		if s == nil {
			return null
		}
		return string(must.Get(base64.StdEncoding.DecodeString(*s))(t))
	}
	out := plainRecord{topic: r.Topic, key: decoded(r.Key), value: decoded(r.Value), partition: transform.PartitionByKey, timestamp: r.Timestamp, failure: r.Error}
	if r.Partition != nil {
		out.partition = *r.Partition
	}
	for _, h := range r.Headers {
		if *h[0] == "__debezium.context.runId" {
			continue // random
		}
		out.headers += fmt.Sprintf("%q=%q ", *h[0], decoded(h[1]))
	}
	return out
}

var envelopeName = regexp.MustCompile(`"name":"server\.public\.r_\w+\.(?:[^"\\]|\\.)*\.Value"`)

// explain returns the reason why the two differ on purpose, or "".
func explain(s optionSet, got, want plainRecord) string {
	switch {
	case strings.HasPrefix(want.value, "java.nio.HeapByteBuffer"):
		return "bytes under StringConverter are the bytes, there Java's name for them"
	case strings.HasPrefix(want.failure, "DataException"), strings.HasPrefix(want.failure, "SchemaBuilderException"), strings.HasPrefix(want.failure, "NullPointerException"),
		strings.HasPrefix(want.failure, "ClassCastException"):
		return "Debezium stops at the row"
	case want.failure != "":
		return ""
	case got.failure != "" && transform.RouteOptions{Underscores: true}.CheckTopic(want.topic) != nil:
		return "Kafka refuses the topic: a bad event"
	case got.failure != "" && want.timestamp < 0:
		return "the producer refuses a time before 1970: a bad event"
	case got.failure != "":
		return ""
	}
	a, b := got, want
	if a.value, b.value = envelopeName.ReplaceAllString(a.value, `"name":""`), envelopeName.ReplaceAllString(b.value, `"name":""`); a == b {
		return "the envelope's schema is named by the row's own route, there by that of an earlier row"
	}
	a.value, b.value, a.key, b.key, a.headers, b.headers = spelled(a.value), spelled(b.value), spelled(a.key), spelled(b.key), spelled(a.headers), spelled(b.headers)
	if a == b {
		return "floats have the shortest digits, as from Java 19 on"
	}
	if a.value, b.value = sorted(a.value), sorted(b.value); a == b {
		return "members of an array's objects are in the order of the text, there by chance"
	}
	if s.event.SchemaVersion != "" && s.event.PayloadFormat == transform.FormatJSONExpanded {
		return "event.schema_version: each row has the schema of its payload, there that of the version's first row"
	}
	return ""
}

var float = regexp.MustCompile(`-?\d+\.\d+(?:E-?\d+)?`)

// spelled has each float in Go's spelling.
func spelled(text string) string {
	return float.ReplaceAllStringFunc(text, func(s string) string {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return s
		}
		return strconv.FormatFloat(f, 'g', -1, 64)
	})
}

// sorted has the members of objects in the order of their names, and schemas' fields.
func sorted(text string) string {
	var v any
	if json.Unmarshal([]byte(text), &v) != nil {
		return text
	}
	var order func(any)
	order = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, m := range v {
				order(m)
			}
			if fields, ok := v["fields"].([]any); ok {
				sort.Slice(fields, func(i, j int) bool { return fmt.Sprint(fields[i]) < fmt.Sprint(fields[j]) })
			}
		case []any:
			for _, m := range v {
				order(m)
			}
		}
	}
	order(v)
	out, _ := json.Marshal(v)
	return string(out)
}

// report logs the table of the documentation, and fails if a difference has no reason.
func (c *comparison) report(t *testing.T, version string) {
	t.Helper()
	t.Logf("PostgreSQL %s: %d option sets, %d pairs, %d pairs refused at the start", version, c.sets, c.pairs, c.refused)
	for _, reason := range slices.Sorted(maps.Keys(c.counts)) {
		t.Logf("%8d %s", c.counts[reason], reason)
	}
	for i, text := range c.unexplained {
		if i == shownOfKind {
			t.Errorf("and %d more", len(c.unexplained)-i)
			break
		}
		t.Error(text)
	}
	if c.pairs < leastPairs || c.sets < leastSets {
		t.Errorf("%d pairs of %d option sets, less than %d of %d", c.pairs, c.sets, leastPairs, leastSets)
	}
}

// handlingOf has the options of the connector by Debezium's names.
func handlingOf(t *testing.T, options properties) transform.Handling {
	t.Helper()
	h := transform.DefaultHandling()
	v := reflect.ValueOf(&h).Elem()
	for name, value := range options {
		i := slices.IndexFunc(reflect.VisibleFields(v.Type()), func(f reflect.StructField) bool {
			return f.Tag.Get("yaml") == strings.ReplaceAll(name, ".", "_")
		})
		if f := v.Field(i); f.Kind() == reflect.String {
			f.SetString(value)
		} else {
			must.OK(t, json.Unmarshal([]byte(value), f.Addr().Interface()))
		}
	}
	return h
}
