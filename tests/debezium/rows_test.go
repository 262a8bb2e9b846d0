package debezium

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// recordTables are outboxes with payloads of several types.
var recordTables = []struct{ name, id, payload string }{
	{"r_text", "text PRIMARY KEY", "text"},
	{"r_json", "uuid PRIMARY KEY", "json NOT NULL DEFAULT '{}'"},
	{"r_jsonb", "uuid PRIMARY KEY DEFAULT gen_random_uuid()", `jsonb DEFAULT '{"d": [1, 2.50]}'`},
	{"r_bytea", "text PRIMARY KEY", "bytea"},
}

// createRecordTables are the statements that create them.
func createRecordTables() []string {
	statements := []string{
		`CREATE EXTENSION hstore`, `CREATE EXTENSION citext`, `CREATE TYPE mood AS ENUM ('sad', 'ok', 'it''s')`, `CREATE TABLE finis (id int)`,
	}
	for _, t := range recordTables {
		statements = append(statements, `CREATE TABLE `+t.name+` (id `+t.id+`,
			aggregatetype varchar(255) NOT NULL, aggregateid text NOT NULL, type varchar(40) NOT NULL DEFAULT 'made', payload `+t.payload+`,
			akey varchar(20) DEFAULT 'it''s', tenant text DEFAULT lower('ACME'), n int DEFAULT 7, big bigint NOT NULL DEFAULT '9223372036854775807'::bigint,
			f float8 DEFAULT 1.50, f4 real, d numeric(10,2) DEFAULT 12.5, num numeric, ts timestamp DEFAULT now(), ts3 timestamp(3), tz timestamptz DEFAULT CURRENT_TIMESTAMP,
			dt date DEFAULT '2020-02-29', tm time(0), iv interval DEFAULT '1 day', flag boolean DEFAULT true, b bytea DEFAULT '\x00ff', en mood DEFAULT 'ok',
			arr text[] DEFAULT '{}', ints int[], hs hstore, u uuid DEFAULT gen_random_uuid(), part int, ver int, headers json, tracingspancontext text)`)
	}
	return append(statements, `CREATE PUBLICATION p FOR ALL TABLES`)
}

// documents are payloads with something to tell apart.
var documents = []string{
	`{}`, `[]`, ` {}`, ``, `  `, "\u00a0", `null`, `12`, `"x"`, `true`, `{"a":1`, `{"a":1} trailing`, `{"a":1}{`, `{"a":1,}`, `{"a":01}`, `{'a':1}`, `[1,2,3]`, `[{"a":1},{"b":"x"}]`,
	`{"a":null,"b":[],"c":{},"d":[null],"e":[[]],"f":[[],[1]]}`, `{"a":[1,null,2],"b":["x",null],"c":[true],"d":[1.5,2e3]}`,
	`{"a":1,"a":2}`, `{"a":{"x":1},"b":2,"a":[1]}`, `{"a":[1,"x"]}`, `{"a":[1,3000000000]}`, `{"a":[1,1.0]}`, `{"a":[{},[]]}`, `{"a":[[1],["x"]]}`, `{"a":[[1],[2,null]]}`,
	`{"a":1.50,"b":1e2,"c":-0.0,"d":-0,"e":1E400,"f":-1e-400,"g":0.1e-6,"h":12345678901234567890,"i":9223372036854775807,"j":2147483648,"k":-2147483648}`,
	`{"a":1.50,"b":1e2,"c":-0.0,"d":-0,"f":-1e-400,"g":0.1e-6,"i":9223372036854775807,"j":2147483648,"k":-2147483648,"l":1e7,"m":123456789.125,"n":1e21,"o":100}`,
	`{"a":"é\u00e9\ud83d\ude00😀\ud800x\u0001\u007f\/\"\\\b\f\n\r\t\u2028"}`, `{"é😀":1,"\u0041":2,"A":3,"a\tb":{"":1}}`, `{"":null,"b":1}`, `{"":1}`, `{" ":{"x":{"y":1}}}`,
	`{"a":[{"x":1},{"x":2}],"b":[{"x":1},{"x":null}],"c":[{"x":1},null]}`, `{"a":[{"x":1},{"x":1,"y":2}]}`, `{"a":[{"x":1,"y":{"z":1}},{"x":2,"y":{"z":5}},{"x":3}]}`,
	`{"a":[{"x":null},{"x":1}]}`, `{"a":[{"x":1},{"x":"s"}]}`, `{"a":[{"x":1},null,{"x":1,"y":2}]}`, `{"a":[{"x":[{"y":1}]},{"x":[{"y":2}]}]}`,
	`{"a":[[{"x":1}],[{"y":2}],[{"x":3}]]}`, `{"a":[[{" ":{"y":1}}]]}`, `{"a":[[[1]],[[2,3]],[[]]]}`, `{"payload":{"payload":1},"schema":{"type":"x"}}`,
	`{"a" : [ 1 , 2 ] , "b" : "x" }`, "{\"a\":\"\t\"}", `{"a":tru}`, `{"a":nul}`, `{"a":-}`, `{"a":1.}`, `{"a":"\x"}`, `{"a":"\u12"}`, `{"n":` + strings.Repeat("1", 1001) + `.0}`,
	`{"n":` + strings.Repeat("0.1", 1) + strings.Repeat("1", 990) + `}`, `{"deep":` + strings.Repeat("[", 999) + strings.Repeat("]", 999) + `}`,
	`{"deep":` + strings.Repeat("[", 500) + `1` + strings.Repeat("]", 500) + `}`, `{"deep":` + strings.Repeat("[", 1000) + `1` + strings.Repeat("]", 1000) + `}`,
}

var routeValues = []string{
	"order", "Order", "orders", "a.b.Order", "ORDERS", "ab", "b", "xx", "größe", "a\nb", "a\u2028b", "order\u0085", "order\n", "order\r\n", "or\rer", " order ", "\vorder", "orderſ", "or\u212A",
	"__x", "😀", "a b", "", ".", "t", "Payment", "o", "abcdef",
}

// writeRows are statements for rows; PostgreSQL refuses some, as not every document is
// JSON.
func writeRows(r *rand.Rand) (statements []string) {
	for t, table := range recordTables {
		n := 0
		insert := func(payload, columns string, values ...string) {
			n++
			id := fmt.Sprintf("00000000-0000-4000-8000-%06d%06d", t, n)
			names, list := "", ""
			for i, name := range strings.Fields(columns) {
				names += ", " + name
				list += ", " + values[i]
			}
			route := "order"
			if n%3 == 0 {
				route = routeValues[n/3%len(routeValues)]
			}
			statements = append(statements, fmt.Sprintf(`INSERT INTO %s (id, aggregatetype, aggregateid, payload%s) VALUES ('%s', %s, %s, %s%s)`,
				table.name, names, id, quote(route), quote([]string{"k1", "", "ü😀", "k\n2"}[n%4]), payload, list))
		}
		for _, d := range documents {
			if table.name == "r_bytea" && len(d) > 40 {
				continue
			}
			insert(quote(d), "n ts ts3 part ver", strconv.Itoa(r.IntN(100)), times[r.IntN(len(times))], times[r.IntN(len(times))], []string{"NULL", "0", "3"}[r.IntN(3)], []string{"NULL", "1", "1"}[r.IntN(3)])
		}
		for range 25 {
			insert(quote(randomJSON(r, 3)), "num f hs tenant headers tracingspancontext", quote(fmt.Sprint(r.IntN(1000), ".", r.IntN(1000), "0")), quote(fmt.Sprint(r.NormFloat64())),
				quote(`a=>1, "b b"=>NULL`), quote("t\t😀"), quote(`{"h": "v"}`), quote("traceparent=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"))
		}
		insert("NULL", "")
		insert("NULL", "akey tenant n f d ts tz dt iv flag b en arr u", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL", "NULL")
		insert("DEFAULT", "f4 num tm ints hs", "0.1", "1.10", "'12:34:56'", "'{1,NULL}'", `'{"x":1}=>"{}"'`)
	}
	return statements
}

var times = []string{"NULL", "'2026-08-01 12:00:00.123456'", "'1970-01-01 00:00:00'", "'2020-02-29 23:59:59.999999'", "'1969-12-31 23:59:59'", "'20000-01-01 00:00:00'", "'infinity'", "'-infinity'"}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// randomJSON is an object.
func randomJSON(r *rand.Rand, depth int) string {
	var out strings.Builder
	out.WriteByte('{')
	for i := range r.IntN(5) {
		if i > 0 {
			out.WriteByte(',')
		}
		fmt.Fprintf(&out, `"%s":%s`, []string{"id", "name", "x", "y", "ä", "n m"}[r.IntN(6)], randomValue(r, depth-1))
	}
	out.WriteByte('}')
	return out.String()
}

func randomValue(r *rand.Rand, depth int) string {
	kinds := 6
	if depth > 0 {
		kinds = 9
	}
	switch r.IntN(kinds) {
	case 0:
		return "null"
	case 1:
		return strconv.FormatBool(r.IntN(2) == 0)
	case 2:
		return strconv.Itoa(r.IntN(2000) - 1000)
	case 3:
		return strconv.FormatFloat(float64(r.IntN(100000))/128, 'g', -1, 64)
	case 4:
		return strconv.FormatInt(r.Int64(), 10)
	case 5:
		return []string{`"s"`, `""`, `"ü"`, `"\u00fc\n"`, `"😀"`}[r.IntN(5)]
	case 6:
		return randomJSON(r, depth)
	}
	element := func() string { return strconv.Itoa(r.IntN(9)) }
	if r.IntN(3) == 0 {
		element = func() string { return randomJSON(r, depth) }
	} else if r.IntN(3) == 0 {
		element = func() string { return randomValue(r, depth-1) }
	}
	var list []string
	for range r.IntN(4) {
		list = append(list, element())
	}
	return "[" + strings.Join(list, ",") + "]"
}
