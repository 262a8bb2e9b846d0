package outbox_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/outbox"
)

// TestJSONBIsRefusedExactlyWhenPostgreSQLDoes compares thousands of documents.
func TestJSONBIsRefusedExactlyWhenPostgreSQLDoes(t *testing.T) {
	conn := connect(t, newDB(t))
	random := rand.New(rand.NewPCG(1, 2))
	const documents, perBatch = 4000, 400
	var accepted int
	for range documents / perBatch {
		docs := make([]string, perBatch)
		batch := &pgx.Batch{}
		for i := range docs {
			docs[i] = randomJSON(random, 3)
			batch.Queue(`SELECT pg_temp.takes($1)`, docs[i])
		}
		for i, takes := range ask(t, conn, batch, perBatch) {
			if got := accepts(t, docs[i]); got != takes {
				t.Errorf("%s: accepted %t, by PostgreSQL %t", docs[i], got, takes)
			} else if got {
				accepted++
			}
		}
	}
	if accepted < documents/10 || accepted > documents*9/10 {
		t.Errorf("%d of %d documents were accepted: the comparison says little", accepted, documents)
	}
}

// ask runs the batch; each query tells whether jsonb takes a text.
func ask(t *testing.T, conn *pgx.Conn, batch *pgx.Batch, n int) []bool {
	t.Helper()
	_, err := conn.Exec(t.Context(), `CREATE OR REPLACE FUNCTION pg_temp.takes(doc text) RETURNS boolean LANGUAGE plpgsql AS $$
		BEGIN PERFORM doc::jsonb; RETURN true; EXCEPTION WHEN data_exception OR untranslatable_character THEN RETURN false; END $$`)
	if err != nil {
		t.Fatal(err)
	}
	results := conn.SendBatch(t.Context(), batch)
	defer results.Close()
	takes := make([]bool, n)
	for i := range takes {
		if err := results.QueryRow().Scan(&takes[i]); err != nil {
			t.Fatal(err)
		}
	}
	return takes
}

// TestAPayloadCountsAsItIsPublished compares the size with jsonb's text.
func TestAPayloadCountsAsItIsPublished(t *testing.T) {
	conn := connect(t, newDB(t))
	random := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		doc := randomJSON(random, 3)
		if !accepts(t, doc) {
			continue
		}
		var published int
		var text string
		if err := conn.QueryRow(t.Context(), `SELECT octet_length($1::jsonb::text), $1::jsonb::text`, doc).Scan(&published, &text); err != nil {
			t.Fatal(err)
		}
		size := counted(t, doc)
		if size < published || !strings.ContainsAny(doc, "\\{") && size != published {
			t.Errorf("%s counts %d bytes, and is published with %d", doc, size, published)
		}
	}
}

// counted returns how many bytes a payload counts.
func counted(t testing.TB, payload string) (size int) {
	t.Helper()
	e := order("1")
	e.Payload = json.RawMessage(payload)
	_, err := newWriter(t, outbox.Options{MaxBytes: 1}).Write(t.Context(), outbox.SQL(&recorder{}), e)
	var invalid *outbox.InvalidError
	if !errors.As(err, &invalid) {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(invalid.Problems[0].Err.Error(), "makes %d bytes", &size); err != nil {
		t.Fatal(invalid)
	}
	return size - len(e.AggregateID)
}

// PostgreSQL writes the numbers of jsonb out: a small payload may become too large
// for the topic.
func TestAPayloadThatJSONBMakesLarge(t *testing.T) {
	small := json.RawMessage("[" + strings.TrimSuffix(strings.Repeat("5e-324,", 4000), ",") + "]")
	e := order("1")
	e.Payload = small
	_, err := outbox.WriteSQL(t.Context(), &recorder{}, e)
	if !errors.Is(err, outbox.ErrInvalid) || !strings.Contains(err.Error(), "without exponents") {
		t.Errorf("%d bytes: %v", len(small), err)
	}
	if _, err := outbox.EmitSQL(t.Context(), &recorder{}, e); err != nil {
		t.Errorf("a message is published as it is: %v", err)
	}
	if _, err := newWriter(t, outbox.Options{Payload: outbox.JSON}).Write(t.Context(), outbox.SQL(&recorder{}), e); err != nil {
		t.Errorf("so is json: %v", err)
	}
}

func accepts(t testing.TB, payload string) bool {
	t.Helper()
	e := order("1")
	e.Payload = json.RawMessage(payload)
	_, err := outbox.WriteSQL(t.Context(), &recorder{}, e)
	return err == nil
}

// randomJSON returns text near JSON, and near jsonb.
func randomJSON(r *rand.Rand, depth int) string {
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	text := func() string {
		var b strings.Builder
		for range r.IntN(4) {
			b.WriteString(pick(`a`, `\\`, `\"`, `\n`, `\u00e9`, `\ud83c\udf75`, `\ud83c`, `\udf75`, `\uD83C\u0041`, `\u0000`, `\\u0000`,
				`u0000`, `茶`, `\u005cu0000`, "\t", `\x`, ` `, `1e999999`, `\uDBFF\uDFFF`))
		}
		return `"` + b.String() + `"`
	}
	number := func() string {
		return pick("", "-", "+") + pick("1", "10", "0", "01", "123456") + pick("", ".5", ".", ".050") +
			pick("", "e5", "E-16382", "e-16383", "e-16384", "e131070", "e131071", "e+131072", "e-99999999", "e99999999999999999999")
	}
	switch n := r.IntN(10); {
	case depth == 0 || n < 2:
		return pick("true", "null", `""`, "{}", "[]", "tru")
	case n < 5:
		return text()
	case n < 7:
		// Of zero, PostgreSQL forgets a positive exponent, and we do not: no difference
		// worth code.
		for {
			if s := number(); !strings.HasPrefix(strings.TrimLeft(s, "-+"), "0") {
				return s
			}
		}
	case n < 8:
		return "[" + randomJSON(r, depth-1) + pick(",", ", ", " ") + randomJSON(r, depth-1) + "]"
	default:
		return fmt.Sprintf("{%s:%s, %s : %s}", text(), randomJSON(r, depth-1), text(), randomJSON(r, depth-1))
	}
}

func FuzzAcceptedPayloadIsJSON(f *testing.F) {
	for _, seed := range []string{`{"a": "\ud83c\udf75"}`, `[1e5, -0.5, "\u0000"]`, `"\u12`, `{`, "\xff", `1e`, `"\\"`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		if accepts(t, string(payload)) && !(json.Valid(payload) && utf8.Valid(payload)) {
			t.Errorf("accepted %q", payload)
		}
	})
}
