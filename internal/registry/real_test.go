package registry_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/registry"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// shopOrder has the types of JSON, and logical types in a union and without.
const shopOrder = `{"type":"record","name":"Order","namespace":"shop","fields":[
	{"name":"id","type":"long"},
	{"name":"note","type":["null","string"],"default":null},
	{"name":"ratio","type":"double"},
	{"name":"total","type":{"type":"bytes","logicalType":"decimal","precision":18,"scale":2}},
	{"name":"lines","type":{"type":"array","items":{"type":"record","name":"Line","fields":[
		{"name":"sku","type":"string"},{"name":"n","type":"int"}]}}},
	{"name":"tags","type":{"type":"map","values":"string"}},
	{"name":"state","type":{"type":"enum","name":"State","symbols":["NEW","PAID"]}},
	{"name":"day","type":{"type":"int","logicalType":"date"}},
	{"name":"at","type":["null",{"type":"long","logicalType":"timestamp-micros"}]},
	{"name":"token","type":{"type":"string","logicalType":"uuid"}}]}`

// order makes an order as a row's payload may have it.
func order(r *rand.Rand) map[string]any {
	text := func() string {
		all := []rune("abc äß€😀\"\\\n")
		out := make([]rune, r.IntN(8))
		for i := range out {
			out[i] = all[r.IntN(len(all))]
		}
		return string(out)
	}
	cents := r.Int64N(1e15) - 5e14
	sign := ""
	if cents < 0 {
		sign, cents = "-", -cents
	}
	o := map[string]any{
		"id": r.Int64() - r.Int64(), "note": nil, "ratio": r.NormFloat64() * 1e6, "total": fmt.Sprintf("%s%d.%02d", sign, cents/100, cents%100),
		"tags": map[string]string{}, "state": []string{"NEW", "PAID"}[r.IntN(2)], "day": time.Unix(r.Int64N(4e9)-2e9, 0).UTC().Format(time.DateOnly), "at": nil,
		"token": fmt.Sprintf("%08x-0000-4000-8000-%012x", r.Uint32(), r.Uint32()),
	}
	if r.IntN(2) == 0 {
		o["note"] = text()
		o["at"] = time.Unix(r.Int64N(4e9)-2e9, r.Int64N(1e6)*1000+1000).UTC().Format("2006-01-02T15:04:05.000000Z")
	}
	lines := []any{}
	for range r.IntN(4) {
		lines = append(lines, map[string]any{"sku": text(), "n": r.Int32() - r.Int32()})
	}
	o["lines"] = lines
	if r.IntN(2) == 0 {
		o["tags"] = map[string]string{text(): text()}
	}
	return o
}

// shopOrderProto has the types of JSON, with an import.
const shopOrderProto = `syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "shop/line.proto";
message Other { string x = 1; }
message Order {
  int64 id = 1;
  optional string note = 2;
  double ratio = 3;
  string total = 4;
  repeated Line lines = 5;
  map<string, string> tags = 6;
  enum State { NEW = 0; PAID = 1; }
  State state = 7;
  string day = 8;
  google.protobuf.Timestamp at = 9;
  string token = 10;
}`

const shopLineProto = `syntax = "proto3";
package shop;
message Line { string sku = 1; int32 n = 2; }`

const shopOrderJSON = `{"$schema":"https://json-schema.org/draft/2020-12/schema","title":"Order","type":"object","additionalProperties":false,
	"required":["id","lines"],"properties":{"id":{"type":"integer"},"note":{"type":["string","null"]},"ratio":{"type":"number"},
	"total":{"type":"string","pattern":"^-?[0-9]+\\.[0-9]{2}$"},"lines":{"type":"array","items":{"$ref":"line.json"}},
	"tags":{"type":"object","additionalProperties":{"type":"string"}},"state":{"enum":["NEW","PAID"]},"day":{"type":"string"},
	"at":{"type":["string","null"]},"token":{"type":"string","minLength":36}}}`

const shopLineJSON = `{"type":"object","properties":{"sku":{"type":"string"},"n":{"type":"integer"}},"required":["sku","n"]}`

// vendors are a registry of another vendor with Confluent's serializers for Python, as make
// test-registry starts them.
type vendors struct {
	url, python, topic string
	r                  *rand.Rand
}

func realRegistry(t *testing.T) *vendors {
	t.Helper()
	url, python := os.Getenv("CDC_OUTBOX_REGISTRY_URL"), os.Getenv("CDC_OUTBOX_REGISTRY_PYTHON")
	if url == "" || python == "" {
		t.Skip("make test-registry runs it")
	}
	seed := time.Now().UnixNano()
	t.Log("seed", seed)
	return &vendors{url, python, fmt.Sprintf("orders%d", seed), rand.New(rand.NewPCG(uint64(seed), 0))}
}

const realRecords = 1000

// records are encoded by schemas that are registered, and by those found: alike. A line
// has topic, value and payload of a record.
func (r *vendors) records(t *testing.T, form registry.Form) (lines string) {
	t.Helper()
	opts := registry.DefaultOptions()
	opts.Registry.URLs, opts.Registry.Timeout = []string{r.url}, time.Minute // for its first answers
	opts.Value = form
	lookUp := opts
	lookUp.Value.Files, lookUp.Value.References, lookUp.Value.Register = nil, nil, false
	waits(t, encode(t, connected(t, lookUp), r.event(`{}`)), "register a schema under subject "+r.topic+"-value")
	must.OK(t, connected(t, opts).Reach(t.Context()))

	var out strings.Builder
	registering, looking := connected(t, opts), connected(t, lookUp)
	for range realRecords {
		payload := string(must.Get(json.Marshal(order(r.r)))(t))
		one, two := r.event(payload), r.event(payload)
		must.OK(t, encode(t, registering, one))
		must.OK(t, encode(t, looking, two))
		if !bytes.Equal(one.Record.Value, two.Record.Value) {
			t.Fatalf("%s: %x with registration, %x by look-up", payload, one.Record.Value, two.Record.Value)
		}
		fmt.Fprintf(&out, "%s\t%s\t%s\n", r.topic, hex.EncodeToString(one.Record.Value), payload)
	}
	return out.String()
}

func (r *vendors) event(payload string) *transform.Event {
	ev := event("k", payload)
	ev.Record.Topic = r.topic
	return ev
}

// form is a format with files, registered.
func (r *vendors) form(t *testing.T, format string, files map[string]string) registry.Form {
	t.Helper()
	form := registry.DefaultOptions().Value
	form.Format, form.Register, form.Files = format, true, map[string]string{}
	for subject, text := range files {
		form.Files[subject] = filepath.Join(t.TempDir(), "schema")
		must.OK(t, os.WriteFile(form.Files[subject], []byte(text), 0o600))
	}
	return form
}

// run runs a program of testdata.
func (r *vendors) run(t *testing.T, lines, program string, args ...string) string {
	t.Helper()
	return output(t, exec.CommandContext(t.Context(), r.python, append([]string{"testdata/" + program, r.url}, args...)...), lines)
}

// output is a program's, given the lines.
func output(t *testing.T, cmd *exec.Cmd, lines string) string {
	t.Helper()
	cmd.Stdin = strings.NewReader(lines)
	out, err := cmd.Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		t.Fatalf("%s", failed.Stderr)
	}
	must.OK(t, err)
	return strings.TrimSpace(string(out))
}

// A registry of another vendor has the schemas. Its deserializer for Java, and a third vendor's
// for Python, read the records, and write the same bytes: make test-registry.
func TestOthersReadAvro(t *testing.T) {
	r := realRegistry(t)
	lines := r.records(t, r.form(t, registry.FormatAvro, map[string]string{r.topic + "-value": shopOrder}))
	if got := r.run(t, lines, "read_avro.py"); got != fmt.Sprint(realRecords) {
		t.Errorf("read %s of %d records", got, realRecords)
	}
	own := strings.TrimSuffix(r.url, "ccompat/v7") + "registry/v2"
	java := exec.CommandContext(t.Context(), "java", "-cp", os.Getenv("CDC_OUTBOX_REGISTRY_JARS"), "testdata/ReadAvro.java", own)
	if got := output(t, java, lines); got != fmt.Sprint(realRecords) {
		t.Errorf("Java read %s of %d records", got, realRecords)
	}
}

func TestOthersReadJSONSchema(t *testing.T) {
	r := realRegistry(t)
	form := r.form(t, registry.FormatJSONSchema, map[string]string{r.topic + "-value": shopOrderJSON, r.topic + "-line": shopLineJSON})
	form.References = map[string]string{"line.json": r.topic + "-line"}
	if got := r.run(t, r.records(t, form), "read_json.py"); got != fmt.Sprint(realRecords) {
		t.Errorf("read %s of %d records", got, realRecords)
	}
}

// The schema that the serializer of Python registers, a descriptor, serves as well.
func TestOthersReadProtobuf(t *testing.T) {
	r := realRegistry(t)
	form := r.form(t, registry.FormatProtobuf, map[string]string{r.topic + "-value": shopOrderProto, r.topic + "-line": shopLineProto})
	form.References, form.Message = map[string]string{"shop/line.proto": r.topic + "-line"}, "shop.Order"
	lines := r.records(t, form)
	theirs := strings.Fields(r.run(t, lines, "read_protobuf.py", descriptors(t), "shop.Order", r.topic+"-python"))
	if len(theirs) != realRecords {
		t.Fatalf("read %d of %d records", len(theirs), realRecords)
	}
	opts := registry.DefaultOptions()
	opts.Registry.URLs = []string{r.url}
	opts.Value.Format, opts.Value.Message = registry.FormatProtobuf, "shop.Order"
	e := connected(t, opts)
	r.topic += "-python"
	for i, line := range strings.Split(strings.TrimSpace(lines), "\n") {
		ev := r.event(strings.Split(line, "\t")[2])
		must.OK(t, encode(t, e, ev))
		if got := hex.EncodeToString(ev.Record.Value); got != theirs[i] {
			t.Fatalf("%s: %s, there %s", line, got, theirs[i])
		}
	}
}

// descriptors are the files of the order, in base64.
func descriptors(t *testing.T) string {
	t.Helper()
	compiler := protocompile.Compiler{Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{
		Accessor: protocompile.SourceAccessorFromMap(map[string]string{"shop/order.proto": shopOrderProto, "shop/line.proto": shopLineProto}),
	})}
	files := must.Get(compiler.Compile(t.Context(), "google/protobuf/timestamp.proto", "shop/line.proto", "shop/order.proto"))(t)
	set := new(descriptorpb.FileDescriptorSet)
	for _, file := range files {
		set.File = append(set.File, protodesc.ToFileDescriptorProto(file))
	}
	return base64.StdEncoding.EncodeToString(must.Get(proto.Marshal(set))(t))
}

func connected(t *testing.T, opts registry.Options) *registry.Encoder {
	t.Helper()
	e := must.Get(registry.New(opts, "eventType"))(t)
	t.Cleanup(e.Close)
	return e
}
