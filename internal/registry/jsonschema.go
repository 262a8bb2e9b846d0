package registry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// jsonCodec leaves documents as they are.
type jsonCodec struct {
	schema  *jsonschema.Schema // nil: documents need only be JSON
	textual bool               // a document is a string
}

// schemaURL is the address of the schema itself, where the schema names none.
const schemaURL = "registry:///schema"

func parseJSONSchema(s schemaText, p parsing) (codec, error) {
	text, err := jsonschema.UnmarshalJSON(strings.NewReader(s.text))
	if err != nil {
		return nil, errNotJSON
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft7) // as Confluent's serializers
	compiler.UseLoader(referredSchemas(s.referred))
	if err := compiler.AddResource(schemaURL, text); err != nil {
		return nil, plain(err)
	}
	schema, err := compiler.Compile(schemaURL)
	if err != nil {
		if invalid, ok := errors.AsType[*jsonschema.SchemaValidationError](err); ok {
			err = invalid.Err
		}
		return nil, violation(err)
	}
	c := &jsonCodec{schema, ofTexts(schema)}
	if p.unchecked {
		c.schema = nil
	}
	return c, nil
}

// ofTexts reports whether a document is a string, also beside null as Confluent's converters
// write.
func ofTexts(s *jsonschema.Schema) bool {
	only := func(s *jsonschema.Schema, name string) bool {
		return s.Types != nil && slices.Equal(s.Types.ToStrings(), []string{name})
	}
	if len(s.OneOf) == 2 {
		return only(s.OneOf[0], "null") && only(s.OneOf[1], "string")
	}
	return only(s, "string")
}

// referredSchemas finds schemas by the names of references, and asks nobody.
type referredSchemas []reference

// Load implements jsonschema.URLLoader.
func (all referredSchemas) Load(url string) (any, error) {
	for _, r := range all {
		if url == r.name || strings.HasSuffix(url, "/"+strings.TrimPrefix(r.name, "./")) {
			return jsonschema.UnmarshalJSON(strings.NewReader(r.text))
		}
	}
	return nil, errors.New("no reference of the schema has this name")
}

func (c *jsonCodec) append(dst, document []byte, text bool) ([]byte, error) {
	if !utf8.Valid(document) {
		return dst, errNotUTF8
	}
	if text && c.textual {
		document = quoted(document)
	}
	if !json.Valid(document) {
		return dst, errNotJSON
	}
	if c.schema != nil {
		if err := c.check(document); err != nil {
			return dst, err
		}
	}
	return append(dst, document...), nil
}

// check validates a document, which is JSON.
func (c *jsonCodec) check(document []byte) error {
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber()
	var value any
	if d.Decode(&value) != nil {
		return errNotJSON
	}
	if err := inReach(value); err != nil {
		return err
	}
	if err := c.schema.Validate(value); err != nil {
		return violation(err)
	}
	return nil
}

// quoted is a text as a JSON string.
func quoted(text []byte) []byte {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	_ = e.Encode(string(text)) // a string is always encoded
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

// largestExponent is beyond every type's range. The library compares numbers as fractions,
// for which a large exponent is slow, and ends in a panic from a million on.
const largestExponent = 10_000

// inReach refuses numbers that the library cannot compare.
func inReach(value any) error {
	switch v := value.(type) {
	case map[string]any:
		for _, member := range v {
			if err := inReach(member); err != nil {
				return err
			}
		}
	case []any:
		for _, element := range v {
			if err := inReach(element); err != nil {
				return err
			}
		}
	case json.Number:
		if at := strings.IndexAny(string(v), "eE"); at >= 0 {
			if n, err := strconv.Atoi(string(v[at+1:])); err != nil || n > largestExponent || n < -largestExponent {
				return fmt.Errorf("%.40s is out of range", string(v))
			}
		}
	}
	return nil
}

var english = message.NewPrinter(language.English)

// violation is a fault of a document, the first by place.
func violation(err error) error {
	root, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return plain(err)
	}
	first := root
	var visit func(*jsonschema.ValidationError)
	visit = func(v *jsonschema.ValidationError) {
		for _, cause := range v.Causes {
			visit(cause)
		}
		if len(v.Causes) == 0 && (first == root || before(v, first)) {
			first = v
		}
	}
	visit(root)
	return plain(fmt.Errorf("%s: %s", placeIn(first.InstanceLocation), first.ErrorKind.LocalizedString(english)))
}

// before compares faults by place and, at the same place, by the rule.
func before(a, b *jsonschema.ValidationError) bool {
	if order := slices.Compare(a.InstanceLocation, b.InstanceLocation); order != 0 {
		return order < 0
	}
	return slices.Compare(a.ErrorKind.KeywordPath(), b.ErrorKind.KeywordPath()) < 0
}

// placeIn is a JSON pointer.
func placeIn(steps []string) string {
	if len(steps) == 0 {
		return "the document"
	}
	var place strings.Builder
	for _, step := range steps {
		place.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(step))
	}
	return fmt.Sprintf("%.200s", place.String())
}
