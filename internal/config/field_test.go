package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

// keyCase is how one key is written in a test, and what must become of it.
type keyCase struct {
	yaml, text string
	want       any
}

// sample returns a value for a field that is not its default.
func sample(t *testing.T, f *field) keyCase {
	t.Helper()
	switch f.value.Interface().(type) {
	case setting.Secret:
		return keyCase{"s3cret", "s3cret", setting.Secret("s3cret")}
	case time.Duration:
		return keyCase{"1m1s", "1m1s", 61 * time.Second}
	case string:
		return keyCase{"some text", "some text", "some text"}
	case bool:
		flipped := !f.value.Bool()
		return keyCase{fmt.Sprint(flipped), fmt.Sprint(flipped), flipped}
	case []pg.Table:
		return keyCase{"[a, b.c]", "a,b.c", []pg.Table{{Schema: "public", Name: "a"}, {Schema: "b", Name: "c"}}}
	case []string:
		return keyCase{"[a, b]", "a,b", []string{"a", "b"}}
	case map[string]string:
		return keyCase{"{a: x, b: y}", "a=x,b=y", map[string]string{"a": "x", "b": "y"}}
	case *Stdout:
		return keyCase{"{}", "true", &Stdout{}}
	case int, int64, int32, int16:
		return keyCase{"17", "17", reflect.ValueOf(17).Convert(f.value.Type()).Interface()}
	}
	t.Fatalf("%s: no sample for %s", f.key, f.value.Type())
	return keyCase{}
}

// TestEveryKeyIsSettable sets each key of the struct alone, by file, variable
// and flag.
func TestEveryKeyIsSettable(t *testing.T) {
	defaults := Default()
	fs := fieldsOf(&defaults)
	for _, key := range fs.keys {
		f := fs.byKey[key]
		c := sample(t, f)
		for how, opts := range map[string]Options{
			"file":        {File: writeFile(t, nest(key, c.yaml))},
			"environment": {Environ: []string{environmentName(key) + "=" + c.text}},
			"flag":        {Set: []string{key + "=" + c.text}},
		} {
			l := read(opts, nil)
			cfg := l.cfg
			if len(l.problems.List) > 0 {
				t.Errorf("%s by %s: %v", key, how, &l.problems)
				continue
			}
			if cfg.Sink.Kafka == nil {
				cfg.Sink.Kafka = sink.DefaultOptions()
			}
			got := fieldsOf(cfg).byKey[key].value.Interface()
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("%s by %s is %#v, want %#v", key, how, got, c.want)
			}
		}
	}
}

// TestVariablesAreDistinct also keeps keys from looking like the variables that
// Kubernetes injects, which are ignored.
func TestVariablesAreDistinct(t *testing.T) {
	defaults := Default()
	seen := map[string]string{}
	for _, key := range fieldsOf(&defaults).keys {
		name := environmentName(key)
		if other, taken := seen[name]; taken {
			t.Errorf("%s and %s share %s", key, other, name)
		}
		if foreignVariable.MatchString(name) {
			t.Errorf("%s of %s would be ignored", name, key)
		}
		seen[name] = key
	}
}

var documentedKey = regexp.MustCompile("(?m)^\\| `([a-z0-9_.]+)` \\| (\\w+) \\| (?:`(.*?)`)? ?\\| .+ \\|$")

// TestEveryKeyIsDocumented compares docs/configuration.md with the struct: keys,
// types and defaults.
func TestEveryKeyIsDocumented(t *testing.T) {
	page := must.Get(os.ReadFile("../../docs/configuration.md"))(t)
	defaults := Default()
	fs := fieldsOf(&defaults)
	documented := map[string]bool{}
	for _, row := range documentedKey.FindAllStringSubmatch(string(page), -1) {
		key, typ, text := row[1], row[2], row[3]
		f, ok := fs.byKey[key]
		if !ok || documented[key] {
			t.Errorf("%s is documented, but does not exist or is there twice", key)
			continue
		}
		documented[key] = true
		if want := typeName(f); typ != want {
			t.Errorf("%s is documented as %s, want %s", key, typ, want)
		}
		if want := defaultText(f); text != want {
			t.Errorf("%s is documented with the default %q, want %q", key, text, want)
		}
	}
	for _, key := range fs.keys {
		if !documented[key] {
			t.Errorf("%s is not documented", key)
		}
	}
}

func typeName(f *field) string {
	switch f.value.Interface().(type) {
	case setting.Secret:
		return "secret"
	case time.Duration:
		return "duration"
	case string:
		return "string"
	case bool:
		return "boolean"
	case []pg.Table:
		return "list"
	case []string:
		return "list"
	case map[string]string:
		return "map"
	case *Stdout:
		return "switch"
	}
	if f.bytes {
		return "bytes"
	}
	return "integer"
}

func defaultText(f *field) string {
	switch v := f.value.Interface().(type) {
	case []pg.Table:
		return fmt.Sprint(v)
	case []string:
		return "[" + strings.Join(v, ", ") + "]"
	case map[string]string:
		return "{}"
	case *Stdout:
		return ""
	}
	if f.bytes {
		if n := f.value.Int(); n%(1<<20) != 0 {
			return fmt.Sprintf("%dKiB", n>>10)
		}
		return fmt.Sprintf("%dMiB", f.value.Int()>>20)
	}
	return fmt.Sprint(f.value.Interface())
}

// nest writes a.b.c as nested YAML.
func nest(key, value string) string {
	names := strings.Split(key, ".")
	var b strings.Builder
	for depth, name := range names {
		b.WriteString(strings.Repeat("  ", depth) + name + ":")
		if depth == len(names)-1 {
			b.WriteString(" " + value)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	must.OK(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}
