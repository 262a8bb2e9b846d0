package registry

import (
	"github.com/twmb/franz-go/pkg/sr"

	"github.com/cdc-outbox/cdc-outbox/internal/registry/avro"
)

// A codec writes documents by a schema. Several goroutines may use a codec.
type codec interface {
	// append appends the document, with everything behind the schema's number. text: the
	// document is a key's text.
	append(dst, document []byte, text bool) ([]byte, error)
}

// schemaText is a schema with the referred ones, in the order of dependence.
type schemaText struct {
	text     string
	referred []reference
}

// reference is a schema referred to by a name.
type reference struct{ name, text string }

// parsing are the options of a codec.
type parsing struct {
	ignoreUnknown bool
	message       string // in Protobuf; "": the first
	unchecked     bool   // JSON Schema: documents need only be JSON
}

// format is a format with schemas.
type format struct {
	of       sr.SchemaType
	fields   bool // unknown members may be ignored
	messages bool // a schema has several messages
	parse    func(schemaText, parsing) (codec, error)
}

// formats are the values of Form.Format with schemas.
var formats = map[string]*format{
	FormatAvro:       {of: sr.TypeAvro, fields: true, parse: parseAvro},
	FormatProtobuf:   {of: sr.TypeProtobuf, fields: true, messages: true, parse: parseProtobuf},
	FormatJSONSchema: {of: sr.TypeJSON, parse: parseJSONSchema},
}

// The errors of documents in any format.
var errNotJSON, errNotUTF8 = avro.ErrNotJSON, avro.ErrNotUTF8

type avroCodec struct {
	schema        *avro.Schema
	ignoreUnknown bool
}

func parseAvro(s schemaText, p parsing) (codec, error) {
	var referred []string
	for _, r := range s.referred {
		referred = append(referred, r.text)
	}
	schema, err := avro.Parse(s.text, referred...)
	if err != nil {
		return nil, err
	}
	return avroCodec{schema, p.ignoreUnknown}, nil
}

func (c avroCodec) append(dst, document []byte, text bool) ([]byte, error) {
	return c.schema.Append(dst, document, avro.Options{IgnoreUnknown: c.ignoreUnknown, Text: text && c.schema.Textual()})
}
