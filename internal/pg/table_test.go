package pg

import (
	"strings"
	"testing"
)

func TestParseTable(t *testing.T) {
	tests := []struct {
		name, in string
		want     Table
		text     string // String(); "" means in
	}{
		{"schema and table", `app.outbox`, Table{"app", "outbox"}, ""},
		{"default schema", `outbox`, Table{"public", "outbox"}, "public.outbox"},
		{"unquoted folds", `App.OutBox`, Table{"app", "outbox"}, "app.outbox"},
		{"quoted keeps case", `"App"."OutBox"`, Table{"App", "OutBox"}, ""},
		{"quoted lower case needs no quotes", `"app"."outbox"`, Table{"app", "outbox"}, "app.outbox"},
		{"dot and space inside quotes", `"my.schema"."out box"`, Table{"my.schema", "out box"}, ""},
		{"doubled quote", `"a""b".c`, Table{`a"b`, "c"}, ""},
		{"only a quote", `""""`, Table{"public", `"`}, `public.""""`},
		{"digits and dollar after the first", `a1$.b_2`, Table{"a1$", "b_2"}, ""},
		{"non-ASCII is not folded", `Übung.Äpfel`, Table{"Übung", "Äpfel"}, ""},
		{"space around parts", " app . outbox\n", Table{"app", "outbox"}, "app.outbox"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseTable(tt.in)
			if err != nil {
				t.Fatal(err)
			}
			if got != tt.want {
				t.Errorf("got %#v, want %#v", got, tt.want)
			}
			if tt.text == "" {
				tt.text = tt.in
			}
			if got.String() != tt.text {
				t.Errorf("String() = %s, want %s", got, tt.text)
			}
		})
	}
}

func TestParseTableRefuses(t *testing.T) {
	tests := []struct{ name, in, want string }{
		{"nothing", ``, "empty"},
		{"empty schema", `.outbox`, "unexpected"},
		{"empty table", `app.`, "empty"},
		{"empty quotes", `"".x`, "empty"},
		{"three parts", `db.app.outbox`, "more than schema and table"},
		{"open quote", `app."outbox`, "not closed"},
		{"leading digit", `1app.outbox`, "quote a name"},
		{"dash", `my-schema.outbox`, "quote a name"},
		{"text after quote", `"app"x.outbox`, "quote a name"},
		{"too long for PostgreSQL", strings.Repeat("x", 64), "longer than 63"},
		{"zero byte", "\"a\x00\".b", "zero byte"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseTable(tt.in)
			if err == nil {
				t.Fatalf("got %#v, want an error", got)
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %q does not contain %q", err, tt.want)
			}
		})
	}
}

// Whatever is a table name is one again after String and Quoted.
func FuzzParseTable(f *testing.F) {
	for _, s := range []string{`a.b`, `"A"".b".c`, `Ü`, `a..b`, `"`, `$a.b`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		first, err := ParseTable(s)
		if err != nil {
			return
		}
		for _, text := range []string{first.String(), first.Quoted()} {
			again, err := ParseTable(text)
			if err != nil || again != first {
				t.Errorf("%q parses as %#v, and its form %q as %#v, %v", s, first, text, again, err)
			}
		}
	})
}
