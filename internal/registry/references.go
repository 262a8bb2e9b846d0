package registry

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
)

var (
	errElsewhere = errors.New("the schema refers to a subject without a file")
	errCircle    = errors.New("the references lead back to the schema")
)

// mentioned are the names in Form.References that the text of a subject's schema has, in
// order, without the schema's own.
func (f *Form) mentioned(text, subject string) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(f.References)) {
		short := name
		if f.Format == FormatAvro { // within the namespace, the last part is enough
			short = `"` + name[strings.LastIndexByte(name, '.')+1:] + `"`
		}
		if f.References[name] == subject {
			continue
		}
		if strings.Contains(text, name) || strings.Contains(text, short) {
			names = append(names, name)
		}
	}
	return names
}

// local reads the file of a subject, with all files behind the references. open are the
// subjects on the way.
func (f *Form) local(subject string, open []string) (schemaText, error) {
	path, ok := f.Files[subject]
	switch {
	case slices.Contains(open, subject):
		return schemaText{}, errCircle
	case !ok:
		return schemaText{}, errElsewhere
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return schemaText{}, err
	}
	s := schemaText{text: string(data)}
	for _, name := range f.mentioned(s.text, subject) {
		other, err := f.local(f.References[name], append(open, subject))
		if err != nil {
			return s, err
		}
		s.refer(append(other.referred, reference{name, other.text})...)
	}
	return s, nil
}

// refer adds referred schemas, each once.
func (s *schemaText) refer(all ...reference) {
	for _, r := range all {
		if !slices.ContainsFunc(s.referred, func(known reference) bool { return known.name == r.name }) {
			s.referred = append(s.referred, r)
		}
	}
}
