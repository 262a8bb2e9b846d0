package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

// field is a configuration key and the place of the value.
type field struct {
	key   string // dotted, e.g. source.url
	value reflect.Value
	// bytes: the number takes a unit such as MiB.
	bytes bool
	// verbatim: ${…} has another meaning in the value and stays.
	verbatim bool
}

var (
	secretType   = reflect.TypeFor[setting.Secret]()
	durationType = reflect.TypeFor[time.Duration]()
)

func (f *field) secret() bool { return f.value.Type() == secretType }

// IsSecret reports whether the value of a key must not be shown. The value of
// an unknown key may be anything.
func IsSecret(key string) bool {
	if of, ok := strings.CutPrefix(key, "pipelines."); ok {
		_, key, _ = strings.Cut(of, ".")
	}
	cfg := Default()
	f := fieldsOf(&cfg).byKey[key]
	return f == nil || f.secret()
}

// fields are all keys of a Config. The struct's yaml tags are the only list of
// keys there is.
type fields struct {
	byKey    map[string]*field
	keys     []string        // leaves, in the struct's order
	sections map[string]bool // keys holding other keys
}

// fieldsOf lists the keys of cfg, whose Sink.Kafka must be set.
func fieldsOf(cfg *Config) *fields {
	fs := &fields{byKey: map[string]*field{}, sections: map[string]bool{}}
	fs.add(reflect.ValueOf(cfg).Elem(), "")
	return fs
}

func (fs *fields) add(section reflect.Value, prefix string) {
	for i := range section.NumField() {
		tag := section.Type().Field(i).Tag
		if tag.Get("yaml") == "-" {
			continue
		}
		key, value := join(prefix, tag.Get("yaml")), section.Field(i)
		if nested, ok := nestedSection(value); ok {
			fs.sections[key] = true
			fs.add(nested, key)
			continue
		}
		fs.keys = append(fs.keys, key)
		fs.byKey[key] = &field{
			key:      key,
			value:    value,
			bytes:    tag.Get("unit") == "bytes",
			verbatim: tag.Get("substitute") == "no",
		}
	}
}

// nestedSection returns the struct that value is or points to. A pointer to an
// empty struct is not a section but a switch.
func nestedSection(value reflect.Value) (reflect.Value, bool) {
	switch {
	case value.Kind() == reflect.Struct:
		return value, true
	case value.Kind() == reflect.Pointer && value.Type().Elem().NumField() > 0:
		return value.Elem(), true
	}
	return reflect.Value{}, false
}

// drop takes sections out: their keys are then unknown.
func (fs *fields) drop(sections ...string) {
	within := func(key string) bool {
		first, _, _ := strings.Cut(key, ".")
		return slices.Contains(sections, first)
	}
	fs.keys = slices.DeleteFunc(fs.keys, within)
	maps.DeleteFunc(fs.byKey, func(key string, _ *field) bool { return within(key) })
	maps.DeleteFunc(fs.sections, func(key string, _ bool) bool { return within(key) })
}

func join(prefix, name string) string {
	if prefix == "" {
		return name
	}
	return prefix + "." + name
}

// all lists leaves and sections.
func (fs *fields) all() []string {
	names := slices.Clone(fs.keys)
	for section := range fs.sections {
		names = append(names, section)
	}
	slices.Sort(names)
	return names
}

// children lists the last names of the keys directly under a section.
func (fs *fields) children(section string) []string {
	var names []string
	for _, key := range fs.all() {
		parent, name := cutLast(key)
		if parent == section {
			names = append(names, name)
		}
	}
	return names
}

func cutLast(key string) (parent, name string) {
	i := strings.LastIndexByte(key, '.')
	return key[:max(i, 0)], key[i+1:]
}
