package outbox_test

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/outbox"
)

func TestNewNamesEachWrongOption(t *testing.T) {
	long := strings.Repeat("x", 64)
	headers := func(context.Context) map[string]string { return nil }
	for name, tt := range map[string]struct {
		opts outbox.Options
		says []string
	}{
		"long names":             {outbox.Options{Table: outbox.Table{Schema: long, Name: long}}, []string{"Table.Schema", "Table.Name", "63 bytes"}},
		"NUL in a name":          {outbox.Options{Table: outbox.Table{Columns: outbox.Columns{ID: "a\x00"}}}, []string{"Table.Columns"}},
		"one column for two":     {outbox.Options{Table: outbox.Table{Columns: outbox.Columns{Type: "payload"}}}, []string{`"payload" is named twice`}},
		"prefix":                 {outbox.Options{Prefix: "\xff"}, []string{"Prefix", "ASCII"}},
		"prefix with a space":    {outbox.Options{Prefix: "my events"}, []string{`Prefix: "my events"`, "source.message_prefix"}},
		"long prefix":            {outbox.Options{Prefix: long}, []string{"Prefix", "48"}},
		"payload type":           {outbox.Options{Payload: 9}, []string{"PayloadType(9)", "JSONB"}},
		"limit below":            {outbox.Options{MaxBytes: -1}, []string{"MaxBytes: -1"}},
		"limit above":            {outbox.Options{MaxBytes: 1 << 30}, []string{"MaxBytes: 1073741824"}},
		"headers without column": {outbox.Options{Table: outbox.Table{NoHeaders: true}, ContextHeaders: headers}, []string{"ContextHeaders", "NoHeaders"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := outbox.New(tt.opts)
			if err == nil {
				t.Fatal("no error")
			}
			for _, s := range tt.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("error %v, want %q in it", err, s)
				}
			}
		})
	}
}

// A writer's prefix is valid for the connector, too.
func TestPrefixesAreThoseOfTheConnector(t *testing.T) {
	for _, prefix := range []string{"outbox", "!", "~", "my'prefix", "a b", "ä", "\x7f", "\n", strings.Repeat("x", 48), strings.Repeat("x", 49)} {
		cfg := config.Default()
		cfg.Source.URL, cfg.Source.Mode, cfg.Source.MessagePrefix = "postgres://localhost/app", config.ModeMessage, prefix
		cfg.Sink.Stdout = &config.Stdout{}
		connector := cfg.Validate()
		if _, err := outbox.New(outbox.Options{Prefix: prefix}); (err == nil) != (connector == nil) {
			t.Errorf("prefix %q: library %v, connector %v", prefix, err, connector)
		}
	}
}

// The zero value of a Writer has the default options.
func TestZeroWriter(t *testing.T) {
	var zero outbox.Writer
	made := newWriter(t, outbox.Options{})
	e := order("1")
	e.ID = uuid.MustParse("0190b8f0-0000-7000-8000-000000000001")
	var got, want recorder
	for _, events := range [][]outbox.Event{{e}, {order("2"), order("3")}} {
		for w, tx := range map[*outbox.Writer]*recorder{&zero: &got, made: &want} {
			if _, err := w.Write(t.Context(), outbox.SQL(tx), events...); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Emit(t.Context(), outbox.SQL(tx), events...); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !slices.Equal(got.statements, want.statements) || !reflect.DeepEqual(got.args[0], want.args[0]) || !reflect.DeepEqual(got.args[1], want.args[1]) {
		t.Errorf("statements %q\nwant       %q", got.statements, want.statements)
	}
}
