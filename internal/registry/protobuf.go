package registry

import (
	"bytes"
	"context"
	"embed"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// known are the files that Confluent's serializers know without a reference, beside those
// of google/protobuf.
//
//go:embed protos
var known embed.FS

// protobufCodec writes a message of a file, behind the message's place in the file.
type protobufCodec struct {
	message       protoreflect.MessageDescriptor
	place         []byte
	types         *dynamicpb.Types
	ignoreUnknown bool
}

// schemaFile is the name of the schema itself, which no import has.
const schemaFile = "(schema)"

func parseProtobuf(s schemaText, p parsing) (codec, error) {
	texts := map[string]string{schemaFile: s.text}
	for _, r := range s.referred {
		texts[r.name] = r.text
	}
	compiler := protocompile.Compiler{
		MaxParallelism: 1,
		Resolver: protocompile.WithStandardImports(protocompile.ResolverFunc(func(path string) (protocompile.SearchResult, error) {
			return protobufFile(path, texts)
		})),
	}
	compiled, err := compiler.Compile(context.Background(), schemaFile)
	if err != nil {
		return nil, plain(err)
	}
	file := compiled[0]
	files := new(protoregistry.Files)
	if err := register(files, file); err != nil {
		return nil, plain(err)
	}
	message, err := messageOf(file, p.message)
	if err != nil {
		return nil, err
	}
	return &protobufCodec{message, placeOf(message), dynamicpb.NewTypes(files), p.ignoreUnknown}, nil
}

// protobufFile finds a file: a source text, or a descriptor in base64 as confluent-kafka
// for Python registers.
func protobufFile(path string, texts map[string]string) (found protocompile.SearchResult, err error) {
	text, ok := texts[path]
	if !ok {
		source, err := known.ReadFile("protos/" + path)
		if err != nil {
			return found, errors.New("no reference of the schema has this name")
		}
		text = string(source)
	}
	if data, err := base64.StdEncoding.DecodeString(text); err == nil && len(data) > 0 {
		found.Proto = new(descriptorpb.FileDescriptorProto)
		err = proto.Unmarshal(data, found.Proto)
		found.Proto.Name = proto.String(path)
		return found, err
	}
	found.Source = strings.NewReader(text)
	return found, nil
}

// register registers the file and all behind the imports.
func register(files *protoregistry.Files, file protoreflect.FileDescriptor) error {
	if _, err := files.FindFileByPath(file.Path()); err == nil {
		return nil
	}
	imports := file.Imports()
	for i := range imports.Len() {
		if err := register(files, imports.Get(i).FileDescriptor); err != nil {
			return err
		}
	}
	return files.RegisterFile(file)
}

// errNoMessage is the error of a schema without the wanted message.
var errNoMessage = errors.New("has no message")

// messageOf is the message of the full name; "": the first.
func messageOf(file protoreflect.FileDescriptor, name string) (protoreflect.MessageDescriptor, error) {
	all := file.Messages()
	if name == "" && all.Len() > 0 {
		return all.Get(0), nil
	}
	var names []string
	var find func(protoreflect.MessageDescriptors) protoreflect.MessageDescriptor
	find = func(messages protoreflect.MessageDescriptors) protoreflect.MessageDescriptor {
		for i := range messages.Len() {
			m := messages.Get(i)
			if string(m.FullName()) == name {
				return m
			}
			if !m.IsMapEntry() {
				names = append(names, string(m.FullName()))
			}
			if inner := find(m.Messages()); inner != nil {
				return inner
			}
		}
		return nil
	}
	if m := find(all); m != nil && !m.IsMapEntry() {
		return m, nil
	}
	if len(names) == 0 {
		return nil, errNoMessage
	}
	return nil, fmt.Errorf("%w %.100q, but %.200s", errNoMessage, name, strings.Join(names, ", "))
}

// placeOf is the message's place in the file, as Confluent's serializers write: the
// number of indexes, and the indexes from the outermost message, as zigzag varints. A
// single zero stands for the first message.
func placeOf(m protoreflect.MessageDescriptor) []byte {
	var indexes []int
	for d := protoreflect.Descriptor(m); ; d = d.Parent() {
		if _, top := d.(protoreflect.FileDescriptor); top {
			break
		}
		indexes = append(indexes, d.Index())
	}
	if len(indexes) == 1 && indexes[0] == 0 {
		return []byte{0}
	}
	out := binary.AppendVarint(nil, int64(len(indexes)))
	for i := len(indexes) - 1; i >= 0; i-- {
		out = binary.AppendVarint(out, int64(indexes[i]))
	}
	return out
}

// deepestMessage is the nesting that readers in Java, C++ and Python take.
const deepestMessage = 100

var errDeepMessage = errors.New("messages are nested too deeply for readers in other languages")

const stringValue = "google.protobuf.StringValue"

func (c *protobufCodec) append(dst, document []byte, text bool) ([]byte, error) {
	if !utf8.Valid(document) {
		return dst, errNotUTF8
	}
	message := dynamicpb.NewMessage(c.message)
	if text && c.message.FullName() == stringValue {
		message.Set(c.message.Fields().ByNumber(1), protoreflect.ValueOfString(string(document)))
	} else if err := c.read(document, message); err != nil {
		return dst, err
	}
	out, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend(append(dst, c.place...), message)
	if err != nil {
		return dst, plain(err)
	}
	return out, nil
}

// read reads a document in Protobuf's JSON form.
func (c *protobufCodec) read(document []byte, into proto.Message) error {
	if !json.Valid(document) {
		return errNotJSON
	}
	err := protojson.UnmarshalOptions{DiscardUnknown: c.ignoreUnknown, Resolver: c.types, RecursionLimit: deepestMessage}.Unmarshal(document, into)
	if err != nil {
		return plain(err)
	}
	// Within google.protobuf.Struct, an object is three messages.
	if bytes.Count(document, []byte("{"))+bytes.Count(document, []byte("[")) > deepestMessage/3 && nesting(into.ProtoReflect()) > deepestMessage {
		return errDeepMessage
	}
	return nil
}

// nesting counts the messages within each other; the entry of a map is a message, too.
func nesting(m protoreflect.Message) (deepest int) {
	inner := func(v protoreflect.Value, entry int) { deepest = max(deepest, entry+nesting(v.Message())) }
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap() && f.MapValue().Message() == nil:
			deepest = max(deepest, 1)
		case f.IsMap():
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				inner(v, 1)
				return true
			})
		case f.Message() == nil:
		case f.IsList():
			for i := range v.List().Len() {
				inner(v.List().Get(i), 0)
			}
		default:
			inner(v, 0)
		}
		return true
	})
	return deepest + 1
}

// plain is a library's error on a line, without variable spaces, and bounded.
func plain(err error) error {
	text := strings.TrimPrefix(strings.Join(strings.Fields(err.Error()), " "), "proto: ")
	if len(text) > mostText {
		text = strings.ToValidUTF8(text[:mostText], "") + "…"
	}
	return errors.New(text)
}
