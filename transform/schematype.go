package transform

import "strconv"

// schemaType is a schema of Kafka Connect, apart from optionality and default.
type schemaType struct {
	kind       string // int32, string, struct, …, as JsonConverter names them
	name       string
	version    int // 0: none
	doc        string
	parameters []parameter
	fields     []schemaField // of a struct
	items      *schemaType   // of an array
	ofMap      bool          // a map from string to optional string
	required   bool          // within another schema
}

type parameter struct{ name, value string }

type schemaField struct {
	name string
	of   schemaType
}

// append appends the schema as JsonConverter writes it. standard is the default's JSON,
// nil for none.
func (s schemaType) append(dst []byte, optional bool, standard []byte) []byte {
	dst = appendQuoted(append(dst, `{"type":`...), s.kind)
	switch {
	case s.items != nil:
		dst = s.items.append(append(dst, `,"items":`...), !s.items.required, nil)
	case s.ofMap:
		dst = append(dst, `,"keys":{"type":"string","optional":false},"values":{"type":"string","optional":true}`...)
	case s.kind == "struct":
		dst = append(dst, `,"fields":[`...)
		for i, f := range s.fields {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendFieldName(f.of.append(dst, !f.of.required, nil), f.name)
		}
		dst = append(dst, ']')
	}
	dst = strconv.AppendBool(append(dst, `,"optional":`...), optional)
	if s.name != "" {
		dst = appendQuoted(append(dst, `,"name":`...), s.name)
	}
	if s.version != 0 {
		dst = strconv.AppendInt(append(dst, `,"version":`...), int64(s.version), 10)
	}
	if s.doc != "" {
		dst = appendQuoted(append(dst, `,"doc":`...), s.doc)
	}
	if len(s.parameters) > 0 {
		dst = append(dst, `,"parameters":{`...)
		for i, p := range s.parameters {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendQuoted(dst, p.name), ':')
			dst = appendQuoted(dst, p.value)
		}
		dst = append(dst, '}')
	}
	if standard != nil {
		dst = append(append(dst, `,"default":`...), standard...)
	}
	return append(dst, '}')
}

// appendFieldName makes the schema at the end of dst that of a struct's field.
func appendFieldName(dst []byte, name string) []byte {
	dst = appendQuoted(append(dst[:len(dst)-1], `,"field":`...), name)
	return append(dst, '}')
}
