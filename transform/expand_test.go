package transform

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

func TestExpand(t *testing.T) {
	for _, tt := range []struct{ name, src, want string }{
		{"object", `{"a":1}`, `{"a":1}`},
		{"space", " {"[1:] + " \n\"a\" :\t[ 1 , 2 ] \r, \"b\" : { } } ", `{"a":[1,2],"b":{}}`},
		{"first member dropped", `{"a":null,"b":1}`, `{"b":1}`},
		{"last member dropped", `{"a":1,"b":[]}`, `{"a":1}`},
		{"all members dropped", `{"a":null,"b":[]}`, `{}`},
		{"nulls in arrays stay", `{"a":[null,1,null]}`, `{"a":[null,1,null]}`},
		{"empty array after another stays", `{"a":[[1],[]]}`, `{"a":[[1],[]]}`},
		{"nested array needs a type only where it is first", `{"a":[[1],[null],["x",2]]}`, `{"a":[[1],[null],["x",2]]}`},
		{"strings are copied", `{"é\u00e9\"":"\\\"]}\ud83d\ude00😀\/"}`, `{"é\u00e9\"":"\\\"]}\ud83d\ude00😀\/"}`},
		{"numbers are copied", `{"a":-0.10e+5,"b":1E400,"c":12345678901234567890123}`, `{"a":-0.10e+5,"b":1E400,"c":12345678901234567890123}`},
		{"numbers of one kind", `{"a":[1.5,2e3,99999999999999999999]}`, `{"a":[1.5,2e3,99999999999999999999]}`},
		{"literals", `{"a":[true,false]}`, `{"a":[true,false]}`},
		{"top-level array", `[1,"a",null,{"b":null},[]]`, `[1,"a",null,{},[]]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := expand([]byte("x"), []byte(tt.src), expandOptions{})
			if err != nil || string(got) != "x"+tt.want {
				t.Errorf("got %s, %v, want x%s", got, err, tt.want)
			}
		})
	}
}

func TestExpandLeavesAlone(t *testing.T) {
	for _, tt := range []struct {
		src  string
		want error
	}{
		{``, errNotExpandable},
		{`"a"`, errNotExpandable},
		{` {}`, errNotExpandable},
		{`{`, errNotJSON},
		{`{} x`, errNotJSON},
		{`[1,]`, errNotJSON},
		{"{\"a\":\"\xff\"}", errNotUTF8},
		{`{"a":[1,"x"]}`, errMixedArray},
		{`{"a":[1,3000000000]}`, errMixedArray},
		{`{"a":[1,1.0]}`, errMixedArray},
		{`{"a":[{},[]]}`, errMixedArray},
		{`{"a":[{"b":[true,"x"]}]}`, errMixedArray},
		{`{"a":[null]}`, errUntypedArray},
		{`{"a":[[],[1]]}`, errUntypedArray},
		{`{"a":[[null]]}`, errUntypedArray},
	} {
		if got, err := expand(nil, []byte(tt.src), expandOptions{}); !errors.Is(err, tt.want) {
			t.Errorf("expand(%s) = %s, %v, want %v", tt.src, got, err, tt.want)
		}
	}
}

// FuzzExpand compares the copy with a model that decodes, drops and compares.
func FuzzExpand(f *testing.F) {
	f.Add([]byte(`{"a":null,"b":[],"c":{"d":[null,1.50,[]]},"é":"\ud800\""}`), false, true)
	f.Add([]byte(`[{"a":[1,2.0]},[[],[1]],null,true]`), true, false)
	f.Fuzz(func(t *testing.T, src []byte, keepNull, keepEmptyArray bool) {
		opts := expandOptions{keepNull: keepNull, keepEmptyArray: keepEmptyArray}
		out, err := expand(nil, src, opts)
		if err != nil {
			if json.Valid(src) && errors.Is(err, errNotJSON) {
				t.Fatalf("valid JSON was refused: %s", src)
			}
			return
		}
		if !json.Valid(out) {
			t.Fatalf("%s became %s", src, out)
		}
		if hasDuplicate(json.NewDecoder(bytes.NewReader(src))) {
			return
		}
		if got, want := decode(t, out), dropped(decode(t, src), opts); !reflect.DeepEqual(got, want) {
			t.Fatalf("%s became %s, want %v", src, out, want)
		}
	})
}

// decode keeps the text of numbers.
func decode(t *testing.T, data []byte) (v any) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	must.OK(t, d.Decode(&v))
	return v
}

func dropped(v any, opts expandOptions) any {
	switch v := v.(type) {
	case map[string]any:
		for name, m := range v {
			if list, ok := m.([]any); m == nil && !opts.keepNull || ok && len(list) == 0 && !opts.keepEmptyArray {
				delete(v, name)
				continue
			}
			v[name] = dropped(m, opts)
		}
	case []any:
		for i := range v {
			v[i] = dropped(v[i], opts)
		}
	}
	return v
}

// hasDuplicate reports whether some object of the next value has a name twice.
func hasDuplicate(d *json.Decoder) bool {
	token, _ := d.Token()
	found := false
	switch token {
	case json.Delim('{'):
		names := make(map[json.Token]bool)
		for d.More() {
			name, _ := d.Token()
			found = found || names[name]
			names[name] = true
			found = hasDuplicate(d) || found
		}
		_, _ = d.Token()
	case json.Delim('['):
		for d.More() {
			found = hasDuplicate(d) || found
		}
		_, _ = d.Token()
	}
	return found
}

func FuzzAppendQuoted(f *testing.F) {
	f.Add("a\"\\\x00\x1f\x7f\u2028😀<>&")
	f.Fuzz(func(t *testing.T, s string) {
		s = strings.ToValidUTF8(s, "")
		var back string
		if err := json.Unmarshal(appendQuoted(nil, s), &back); err != nil || back != s {
			t.Errorf("%q came back as %q, %v", s, back, err)
		}
	})
}
