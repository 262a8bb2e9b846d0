package debezium

import (
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

var update = flag.Bool("update", false, "rewrite transform/testdata/debezium.json")

const recorded = "../../transform/testdata/debezium.json"

// patience bounds a run of Debezium, also on a busy machine.
const patience = 10 * time.Minute

// columnTypes are the types of column c, one table for each, with its values.
var columnTypes = []struct {
	name   string
	values []string
}{
	{"int2", []string{"-5"}},
	{"int4", []string{"7"}},
	{"int8", []string{"9007199254740993"}},
	{"oid", []string{"4000000000"}},
	{"bool", []string{"t", "f"}},
	{"float4", []string{"0.1", "100", "1e10", "1e7", "NaN", "-Infinity", "-0", "16777216", "3.4028235e38"}},
	{"float8", []string{
		"0.1", "100", "1e300", "1e7", "1e-3", "1e-4", "123456789.5", "NaN", "Infinity", "-0", "2e-323", "5e-324", "1e21", "9007199254740993",
		"2.2250738585072014e-308", "1.7976931348623157e308", "9999999", "-1234.5", "0.00123",
	}},
	{"numeric", []string{"1.50", "0", "0.000", "-123.456", "100000000000000000000", "NaN", "-1", "0.00000001", "128", "-128", "-129", "255", "256", "1e-20", "1200"}},
	{"numeric(10,2)", []string{"1.5", "0", "-0.01", "12345678.90", "NaN"}},
	{"numeric(5,0)", []string{"12", "-12"}},
	{"numeric(30,10)", []string{"12345678901234567890.0123456789", "0.0000000001", "0", "0.000001", "-0.0000001234"}},
	{"money", []string{"12.34", "-1234567.89", "0", "0.05", "0.95"}},
	{"text", []string{"a\"b\\c\n", ""}},
	{"varchar(5)", []string{"abc"}},
	{"char(5)", []string{"ab"}},
	{`"char"`, []string{"x"}},
	{"name", []string{"n"}},
	{"citext", []string{"Ab"}},
	{"uuid", []string{"7B1D5A1C-3c1f-4a53-9d0e-0a4fb3c1a001"}},
	{"json", []string{`{"a": [1,  2.50]}`, `"x"`, `null`, `12`}},
	{"jsonb", []string{`{"b": 1, "a": null}`, `[1]`}},
	{"xml", []string{"<a/>"}},
	{"bytea", []string{``, `\x00ff41`, `\xfbefff`}},
	{"bit(1)", []string{"1", "0"}},
	{"bit", []string{"1"}},
	{"bit(8)", []string{"10000001", "00000000"}},
	{"bit(12)", []string{"100000000011", "000000000001"}},
	{"bit(16)", []string{"0000000000000001"}},
	{"bit(64)", []string{"1000000000000000000000000000000000000000000000000000000000000001"}},
	{"bit varying(10)", []string{"101", "1000000001", "", "000000001", "0"}},
	{"bit varying(1)", []string{"1"}},
	{"bit varying", []string{"101"}},
	{"date", []string{"1970-01-02", "1969-12-31", "2026-08-01", "0001-01-01", "0044-03-15 BC", "0001-02-29 BC", "9999-12-31", "20000-01-01", "infinity", "-infinity"}},
	{"timestamp", []string{
		"2026-08-01 12:00:00", "2026-08-01 12:00:00.123456", "2026-08-01 12:00:00.1", "1969-12-31 23:59:59.999999", "infinity", "-infinity", "0001-01-01 00:00:00",
		"0044-03-15 12:00:00 BC", "20000-01-01 00:00:00", "1500-01-01 00:00:00", "294000-01-01 00:00:00", "2262-04-11 23:47:16.854775", "1970-01-01 00:00:00",
	}},
	{"timestamp(3)", []string{"2026-08-01 12:00:00.123", "infinity", "-infinity", "1969-12-31 23:59:59.999"}},
	{"timestamp(0)", []string{"2026-08-01 12:00:00"}},
	{"timestamp(4)", []string{"2026-08-01 12:00:00.1234"}},
	{"timestamptz", []string{
		"2026-08-01 12:00:00+00", "2026-08-01 12:00:00.120000+02", "2026-08-01 12:00:00.123456+00", "2026-08-01 12:30:00+00", "infinity", "-infinity",
		"0001-01-01 00:00:00+00", "0044-03-15 12:00:00+00 BC", "20000-01-01 00:00:00+00", "1500-01-01 00:00:00+00",
	}},
	{"timestamptz(3)", []string{"2026-08-01 12:00:00.123+00", "2026-08-01 12:00:00+00"}},
	{"timestamptz(0)", []string{"2026-08-01 12:00:00+00"}},
	{"timestamptz(1)", []string{"2026-08-01 12:00:00.1+00"}},
	{"time", []string{"12:34:56", "12:34:56.123456", "00:00:00", "24:00:00", "12:34:00.1"}},
	{"time(3)", []string{"12:34:56.123", "12:34:00"}},
	{"time(0)", []string{"12:34:00"}},
	{"timetz", []string{"12:34:56+02", "12:34:56.123456-03:30", "23:00:00-05", "12:34:00+00", "12:34:56.1+00"}},
	{"interval", []string{
		"1 year 2 mons 3 days 04:05:06.789", "-1 day", "00:00:00", "1 mon", "-00:00:01.5", "1 day -01:00:00", "100 years", "-1 year -2 mons +3 days -04:05:06.5",
		"00:00:10.000001", "100 years 00:00:00.123457", "250 years 7 mons 00:00:00.000003", "123:59:59", "1 mon 00:00:00.1",
	}},
	{"inet", []string{"10.0.0.1", "10.0.0.0/8", "::1"}},
	{"cidr", []string{"10.0.0.0/8"}},
	{"macaddr", []string{"08:00:2b:01:02:03"}},
	{"macaddr8", []string{"08:00:2b:01:02:03:04:05"}},
	{"point", []string{"(1,2.5)", "(-0.1,1e300)"}},
	{"hstore", []string{
		`"a"=>"1", "b"=>NULL`, `"q\"q"=>"é\\", "z"=>"2", "aa"=>"3"`, "", `a=>"NULL"`, `"b b"=>"x=>y, z", "ü"=>"1", "😀"=>"2"`,
		`k1=>1,k2=>2,k3=>3,k4=>4,k5=>5,k6=>6,k7=>7,k8=>8,k9=>9,k10=>10,k11=>11,k12=>12,k13=>13,k14=>14,zz=>15,Aa=>16,BB=>17`,
	}},
	{"ltree", []string{"a.b"}},
	{"mood", []string{"sad"}},
	{"keyname", []string{"d"}},
	{"int4[]", []string{"{1,NULL,3}", "{}", "{{1,2},{3,4}}", "[2:3]={1,2}"}},
	{"int2[]", []string{"{1}"}},
	{"int8[]", []string{"{1}"}},
	{"text[]", []string{`{a,"b c",NULL,"q\"q","NULL","","a,b","x\\y"}`}},
	{"varchar(5)[]", []string{`{a}`}},
	{"char(3)[]", []string{`{a}`}},
	{"bool[]", []string{"{t,f}"}},
	{"float8[]", []string{"{1.5,100,NaN}"}},
	{"float4[]", []string{"{1.5,0.1}"}},
	{"numeric[]", []string{"{1.50,2}"}},
	{"numeric(10,2)[]", []string{"{1.50,2,NULL}"}},
	{"uuid[]", []string{"{7b1d5a1c-3c1f-4a53-9d0e-0a4fb3c1a001}"}},
	{"timestamptz[]", []string{`{"2026-08-01 12:00:00+00"}`}},
	{"timestamp[]", []string{`{"2026-08-01 12:00:00.123456"}`}},
	{"timestamp(3)[]", []string{`{"2026-08-01 12:00:00.123"}`}},
	{"date[]", []string{"{2026-08-01}"}},
	{"time[]", []string{"{12:34:56}"}},
	{"json[]", []string{`{"{\"a\": 1}"}`}},
	{"jsonb[]", []string{`{"{\"a\": 1}"}`}},
	{"bytea[]", []string{`{"\\x00ff"}`}},
	{"inet[]", []string{`{10.0.0.1}`}},
	{"cidr[]", []string{`{10.0.0.0/8}`}},
	{"macaddr[]", []string{`{08:00:2b:01:02:03}`}},
	{"mood[]", []string{`{sad,ok}`}},
	{"interval[]", []string{`{"1 day"}`}},
	{"citext[]", []string{`{a}`}},
	{"int4range", []string{"[1,5)"}},
	{"int8range", []string{"[1,5)", "empty"}},
	{"numrange", []string{"[1.5,2)"}},
	{"tsrange", []string{`["2026-08-01 12:00:00","2026-08-02 12:00:00")`}},
	{"tstzrange", []string{`["2026-08-01 12:00:00+00","2026-08-02 12:00:00+00")`, `["2026-08-01 12:00:00+00",)`}},
	{"daterange", []string{"[2026-08-01,2026-08-03)"}},
	{"int4multirange", []string{"{[1,5)}"}},
	{"tsvector", []string{"'a' 'b'"}},
	{"pg_lsn", []string{"16/B374D848"}},
	{"xid", []string{"5"}},
	{"jsonpath", []string{"$.a"}},
	{"regclass", []string{"pg_class"}},
}

// modes are options of Debezium's connector; ours have their names, with _ for the dot.
var modes = map[string]properties{
	"default": {},
	"text": {
		"decimal.handling.mode": "string", "time.precision.mode": "adaptive_time_microseconds", "binary.handling.mode": "base64",
		"interval.handling.mode": "string", "hstore.handling.mode": "map",
	},
	"double":  {"decimal.handling.mode": "double", "time.precision.mode": "connect", "binary.handling.mode": "hex"},
	"iso":     {"time.precision.mode": "isostring", "binary.handling.mode": "base64-url-safe"},
	"micros":  {"time.precision.mode": "microseconds", "money.fraction.digits": "1"},
	"nanos":   {"time.precision.mode": "nanoseconds", "money.fraction.digits": "4"},
	"iso_int": {"time.precision.mode": "isostring", "decimal.handling.mode": "string", "money.fraction.digits": "0"},
}

// places are where the column is put, with the form in which it arrives there.
var places = map[string]set{
	"header":   {properties{"table.fields.additional.placement": "c:header:h"}, stringConverter, stringConverter},
	"key":      {properties{"table.field.event.key": "c"}, stringConverter, stringConverter},
	"envelope": {properties{"table.fields.additional.placement": "c:envelope:e"}, stringConverter, jsonConverter},
	"payload":  {properties{"table.field.event.payload": "c"}, stringConverter, stringConverter},
	"bytes":    {properties{"table.field.event.payload": "c"}, stringConverter, bytesConverter},
	"json":     {properties{"table.field.event.payload": "c"}, stringConverter, jsonConverter},
	"schema":   {properties{"table.field.event.payload": "c"}, stringConverter, schemaConverter},
}

// entry is a value of a column with Debezium's forms. A place that is missing has
// none that anyone could use.
type entry struct {
	Type     string             `json:"type"`
	OID      uint32             `json:"oid"`
	TypeName string             `json:"type_name,omitempty"`
	Modifier int32              `json:"modifier"`
	Text     *string            `json:"text"`
	Modes    []string           `json:"modes"`
	Forms    map[string]*string `json:"forms"`
}

// userOID stands for the OIDs of types that are not built in.
const userOID = 16400

// The transformation is tested against Debezium's form of each type, in each place and
// mode.
func TestE2ETypes(t *testing.T) {
	url := pgtest.Shared(t).NewDatabase(t)
	create, write := typeTables()
	pgtest.Exec(t, url, create...)
	slots := append(slices.Sorted(maps.Keys(modes)), "ours")
	for _, slot := range slots {
		pgtest.Exec(t, url, `SELECT pg_create_logical_replication_slot('`+slot+`', 'pgoutput')`)
	}
	pgtest.Exec(t, url, write...)

	forms := map[string]map[string]map[string]*string{} // by row, mode and place
	for mode, options := range modes {
		connector := connection(t, url, mode, "p")
		maps.Copy(connector, options)
		for _, rec := range (request{Connector: connector, End: "finis", Sets: places}).run(t) {
			if forms[rec.Row] == nil {
				forms[rec.Row] = map[string]map[string]*string{}
			}
			if forms[rec.Row][mode] == nil {
				forms[rec.Row][mode] = map[string]*string{}
			}
			if form, ok := rec.form(t); ok {
				forms[rec.Row][mode][rec.Set] = form
			}
		}
	}
	var entries []entry
	for _, row := range readRows(t, url) {
		entries = append(entries, row.entries(forms[row.id])...)
	}
	text := encode(t, entries)
	if *update {
		must.OK(t, os.WriteFile(recorded, text, 0o600))
		return
	}
	if string(must.Get(os.ReadFile(recorded))(t)) != string(text) {
		t.Errorf("Debezium no longer makes what %s has of the rows: run this with -update, and see what changed", recorded)
	}
	t.Logf("%d values in %d modes and %d places", len(forms), len(modes), len(places))
}

// typeTables are the statements that create the tables, and those that fill them.
func typeTables() (create, write []string) {
	create = []string{
		`CREATE EXTENSION hstore`, `CREATE EXTENSION citext`, `CREATE EXTENSION ltree`,
		`CREATE TYPE mood AS ENUM ('sad', 'ok')`, `CREATE DOMAIN keyname AS varchar(10)`,
		`CREATE TABLE finis (id int)`,
	}
	for i, typ := range columnTypes {
		table := fmt.Sprintf("t%d", i)
		create = append(create, `CREATE TABLE `+table+` (id text PRIMARY KEY, aggregatetype text DEFAULT 'x', aggregateid text DEFAULT 'k', payload text DEFAULT 'p', c `+typ.name+`)`)
		for n, value := range typ.values {
			write = append(write, fmt.Sprintf(`INSERT INTO %s (id, c) VALUES ('%s-%d', $$%s$$)`, table, table, n, value))
		}
		write = append(write, fmt.Sprintf(`INSERT INTO %s (id, c) VALUES ('%s-null', NULL)`, table, table))
	}
	return append(create, `CREATE PUBLICATION p FOR ALL TABLES`), append(write, `INSERT INTO finis VALUES (1)`)
}

// form is what the column has become in the set's place; not ok: nothing of use.
func (r record) form(t *testing.T) (form *string, ok bool) {
	t.Helper()
	if r.Error != "" {
		return nil, false
	}
	switch r.Set {
	case "header":
		for _, h := range r.Headers {
			if *h[0] == "h" {
				form = h[1]
			}
		}
	case "key":
		form = r.Key
	default:
		form = r.Value
	}
	if form == nil {
		return nil, true
	}
	text := string(must.Get(base64.StdEncoding.DecodeString(*form))(t))
	if strings.Contains(text, "[B@") || strings.Contains(text, "HeapByteBuffer") || strings.Contains(text, " UTC ") {
		return nil, false // an address; a time in the zone of the process
	}
	if r.Set == "bytes" {
		text = fmt.Sprintf(`\x%x`, text)
	}
	return &text, true
}

// typedRow is a row as we read it.
type typedRow struct {
	id     string
	column pg.Column
	text   *string
}

// readRows reads the log as the connector does.
func readRows(t *testing.T, url string) (rows []typedRow) {
	t.Helper()
	for _, read := range streamedRows(t, url) {
		last := len(read.Values) - 1
		row := typedRow{id: string(read.Values[0].Data), column: read.Relation.Columns[last]}
		if v := read.Values[last]; v.Kind != pg.Null {
			text := string(v.Data)
			row.text = &text
		}
		rows = append(rows, row)
	}
	return rows
}

// entries are the row's forms, one entry for the modes with the same.
func (r typedRow) entries(byMode map[string]map[string]*string) (out []entry) {
	var table int
	_, _ = fmt.Sscanf(r.id, "t%d", &table)
	for _, mode := range slices.Sorted(maps.Keys(byMode)) {
		forms := byMode[mode]
		if data, ok := forms["bytes"]; ok { // bytes have no text
			forms["payload"] = data
			delete(forms, "bytes")
		}
		e := entry{
			Type: columnTypes[table].name, OID: r.column.Type, TypeName: r.column.TypeName, Modifier: r.column.Modifier,
			Text: r.text, Modes: []string{mode}, Forms: forms,
		}
		if e.TypeName != "" {
			e.OID = userOID
		}
		same := slices.IndexFunc(out, func(o entry) bool { return equalForms(o.Forms, forms) })
		if same < 0 {
			out = append(out, e)
		} else {
			out[same].Modes = append(out[same].Modes, mode)
		}
	}
	return out
}

func equalForms(a, b map[string]*string) bool {
	return maps.EqualFunc(a, b, func(x, y *string) bool { return x == y || x != nil && y != nil && *x == *y })
}

// encode has an entry on each line.
func encode(t *testing.T, entries []entry) []byte {
	t.Helper()
	var text strings.Builder
	text.WriteString("{\"modes\": " + string(must.Get(json.Marshal(modes))(t)) + ",\n\"values\": [\n")
	for i, e := range entries {
		if i > 0 {
			text.WriteString(",\n")
		}
		encoder := json.NewEncoder(&lineWriter{&text})
		encoder.SetEscapeHTML(false)
		must.OK(t, encoder.Encode(e))
	}
	text.WriteString("\n]}\n")
	return []byte(text.String())
}

// lineWriter leaves out the encoder's end of line.
type lineWriter struct{ to *strings.Builder }

func (w *lineWriter) Write(p []byte) (int, error) {
	w.to.WriteString(strings.TrimSuffix(string(p), "\n"))
	return len(p), nil
}
