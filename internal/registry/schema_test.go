package registry_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/certificate"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/registry"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// two has a message for each of two events.
const two = `syntax = "proto3"; package shop; message Placed { int64 id = 1; } message OrderPlaced { int64 id = 2; }`

func (f *fixture) seedOf(t *testing.T, subject string, schema sr.Schema) int {
	t.Helper()
	id, _, err := f.RegisterSchema(subject, schema)
	must.OK(t, err)
	return id
}

func TestMessageOfASchema(t *testing.T) {
	for _, c := range []struct{ name, strategy, record, message, subject, want string }{
		{"the first", registry.SubjectTopic, "${type}", "", "orders-value", "00" + "0807"},
		{"by the event's type", registry.SubjectTopic, "${type}", "shop.${type}", "orders-value", "0202" + "1007"},
		{"by the record's name", registry.SubjectRecord, "shop.${type}", "", "shop.OrderPlaced", "0202" + "1007"},
		{"beside the record's name", registry.SubjectTopicRecord, "any", "shop.Placed", "orders-any", "00" + "0807"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := start(t)
			f.opts.Value.Format, f.opts.Value.Subject, f.opts.Value.Record, f.opts.Value.Message = registry.FormatProtobuf, c.strategy, c.record, c.message
			id := f.seedOf(t, c.subject, sr.Schema{Schema: two, Type: sr.TypeProtobuf})
			e := f.encoder(t)
			f.wants(t, e, event("k", `{"id":7}`), fmt.Sprintf("00%08x%s", id, c.want))
			f.opts.Value.SchemaID, f.opts.Value.Subject, f.opts.Value.Record = id, registry.SubjectTopic, "${type}"
			if c.strategy == registry.SubjectTopic {
				f.wants(t, f.encoder(t), event("k", `{"id":7}`), fmt.Sprintf("00%08x%s", id, c.want))
			}
		})
	}
}

// A message that the schema lacks is missing like a schema, until a newer schema has it.
func TestMissingMessage(t *testing.T) {
	f := start(t)
	f.opts.Value.Format, f.opts.Value.Message = registry.FormatProtobuf, "shop.${type}"
	f.seedOf(t, "orders-value", sr.Schema{Schema: `syntax = "proto3"; package shop; message Placed { int64 id = 1; }`, Type: sr.TypeProtobuf})
	e := f.encoder(t)
	err := encode(t, e, event("k", `{"id":7}`))
	waits(t, err, "correct the schema, or encoding.value.message")
	if want := `schema 1: has no message "shop.OrderPlaced", but shop.Placed`; !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	id := f.seedOf(t, "orders-value", sr.Schema{Schema: two, Type: sr.TypeProtobuf})
	f.wants(t, e, event("k", `{"id":7}`), fmt.Sprintf("00%08x02021007", id))

	ev := event("k", `{"id":7}`)
	ev.Record.Headers = nil
	bad(t, encode(t, e, ev), transform.ReasonUnknownSchema, "the event has no type, of which encoding.value.message makes the name of a message")
	f.opts.MissingSchema = registry.MissingBadEvent
	ev = event("k", `{"id":7}`)
	ev.Record.Headers[0].Value = []byte("Other")
	bad(t, encode(t, f.encoder(t), ev), transform.ReasonUnknownSchema, fmt.Sprintf(`schema %d: has no message "shop.Other", but shop.Placed, shop.OrderPlaced`, id))
}

func TestJSONPassesItsSchema(t *testing.T) {
	f := start(t)
	f.opts.Value.Format = registry.FormatJSONSchema
	f.seedOf(t, "line", sr.Schema{Schema: `{"type":"object","required":["sku"]}`, Type: sr.TypeJSON})
	id := f.seedOf(t, "orders-value", sr.Schema{
		Schema: `{"properties":{"line":{"$ref":"line.json"}}}`, Type: sr.TypeJSON,
		References: []sr.SchemaReference{{Name: "line.json", Subject: "line", Version: 1}},
	})
	e := f.encoder(t)
	const document = `{"line": {"sku": 1.50}}`
	f.wants(t, e, event("k", document), fmt.Sprintf("00%08x%x", id, document))
	bad(t, encode(t, e, event("k", `{"line":{}}`)), transform.ReasonSchemaMismatch, fmt.Sprintf("value, by schema %d: /line: missing property 'sku'", id))
	bad(t, encode(t, e, event("k", `{`)), transform.ReasonInvalidJSON, fmt.Sprintf("value, by schema %d: is not valid JSON", id))
	bad(t, encode(t, e, event("k", "\"\xff\"")), transform.ReasonInvalidUTF8, fmt.Sprintf("value, by schema %d: is not valid UTF-8", id))
}

// Files refer to each other, and to schemas of the registry.
func TestFilesReferToOthers(t *testing.T) {
	for _, c := range []struct{ format, order, line, sku, name, document, want string }{
		{
			registry.FormatProtobuf, `syntax="proto3"; import "shop/Line"; message Order { Line line = 1; }`,
			`syntax="proto3"; import 'shop/Sku'; message Line { Sku sku = 1; }`, `syntax="proto3"; message Sku { string id = 1; }`,
			"/", `{"line":{"sku":{"id":"a"}}}`, "00" + "0a050a030a0161",
		},
		{
			registry.FormatAvro, `{"type":"record","name":"shop.Order","fields":[{"name":"line","type":"Line"}]}`,
			`{"type":"record","name":"shop.Line","fields":[{"name":"sku","type":"shop.Sku"}]}`, `{"type":"record","name":"shop.Sku","fields":[{"name":"id","type":"string"}]}`,
			".", `{"line":{"sku":{"id":"a"}}}`, "0261",
		},
		{
			registry.FormatJSONSchema, `{"properties":{"line":{"$ref":"shop/Line#"}}}`, `{"properties":{"sku":{"$ref":"../shop/Sku"}}}`, `{"type":"integer"}`,
			"/", `{"line":{"sku":1}}`, fmt.Sprintf("%x", `{"line":{"sku":1}}`),
		},
	} {
		t.Run(c.format, func(t *testing.T) {
			f := start(t)
			dir := t.TempDir()
			write := func(name, text string) string {
				path := filepath.Join(dir, name)
				must.OK(t, os.WriteFile(path, []byte(text), 0o600))
				return path
			}
			v := &f.opts.Value
			v.Format, v.Register = c.format, true
			v.Files = map[string]string{"orders-value": write("order", c.order), "line": write("line", c.line)}
			v.References = map[string]string{"shop" + c.name + "Line": "line", "shop" + c.name + "Sku": "sku", "unused": "nowhere"}
			waits(t, encode(t, f.encoder(t), event("k", c.document)), "register a schema under subject sku, or")
			f.seedOf(t, "sku", sr.Schema{Schema: c.sku, Type: map[string]sr.SchemaType{registry.FormatProtobuf: sr.TypeProtobuf, registry.FormatJSONSchema: sr.TypeJSON}[c.format]})

			only := f.encoder(t)
			only.LookOnly()
			must.OK(t, encode(t, only, event("k", c.document)))
			if f.SubjectExists("line") || f.SubjectExists("orders-value") {
				t.Error("a look has registered something")
			}
			f.wants(t, f.encoder(t), event("k", c.document), "0000000003"+c.want)
			v.Register = false
			f.wants(t, f.encoder(t), event("k", c.document), "0000000003"+c.want)
			v.Files, v.References = nil, nil
			f.wants(t, f.encoder(t), event("k", c.document), "0000000003"+c.want)
		})
	}
}

func TestFilesThatReferInACircle(t *testing.T) {
	f := start(t)
	path := filepath.Join(t.TempDir(), "order")
	must.OK(t, os.WriteFile(path, []byte(`syntax="proto3"; import "line"; import "order"; message Order {}`), 0o600))
	f.opts.Value.Format, f.opts.Value.Files = registry.FormatProtobuf, map[string]string{"orders-value": path, "line-value": path}
	f.opts.Value.References = map[string]string{"line": "line-value", "order": "orders-value"}
	err := encode(t, f.encoder(t), event("k", `{}`))
	waits(t, err, "correct the schema")
	if !strings.Contains(err.Error(), "lead back") {
		t.Error(err)
	}
}

// A schema that the registry loses is still known; a later start waits.
func TestDeletedSchema(t *testing.T) {
	f := start(t)
	f.opts.Value.Format = registry.FormatProtobuf
	id := f.seedOf(t, "orders-value", sr.Schema{Schema: two, Type: sr.TypeProtobuf})
	e, want := f.encoder(t), fmt.Sprintf("00%08x000807", id)
	f.wants(t, e, event("k", `{"id":7}`), want)
	req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodDelete, f.URL()+"/subjects/orders-value", nil))(t)
	resp, err := http.DefaultClient.Do(req)
	must.OK(t, err)
	must.OK(t, resp.Body.Close())
	http.DefaultClient.CloseIdleConnections()
	f.wants(t, e, event("k", `{"id":7}`), want)
	waits(t, encode(t, f.encoder(t), event("k", `{"id":7}`)), "register a schema under subject orders-value")
}

// A large document passes, and a fault in it has its place.
func TestLargeDocument(t *testing.T) {
	f := start(t)
	f.opts.Value.Format = registry.FormatJSONSchema
	id := f.seedOf(t, "orders-value", sr.Schema{Schema: `{"items":{"type":"integer"}}`, Type: sr.TypeJSON})
	e := f.encoder(t)
	large := "[" + strings.Repeat("1,", 1<<17) + `1]` + strings.Repeat(" ", 1<<20)
	f.wants(t, e, event("k", large), fmt.Sprintf("00%08x%x", id, large))
	err := encode(t, e, event("k", strings.ReplaceAll(large, "1", `""`)))
	bad(t, err, transform.ReasonSchemaMismatch, fmt.Sprintf("value, by schema %d: /0: got string, want integer", id))
	err = encode(t, e, event("k", strings.Repeat("[", 9000)+strings.Repeat("]", 9000)))
	bad(t, err, transform.ReasonSchemaMismatch, fmt.Sprintf("value, by schema %d: /0: got array, want integer", id))
}

func TestClientCertificate(t *testing.T) {
	dir, pool := t.TempDir(), x509.NewCertPool()
	pair := func(name string) (cert, key string) {
		c, k, err := certificate.SelfSigned()
		must.OK(t, err)
		cert, key = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")
		must.OK(t, os.WriteFile(cert, c, 0o600))
		must.OK(t, os.WriteFile(key, k, 0o600))
		if name == "client" && !pool.AppendCertsFromPEM(c) {
			t.Fatal("no certificate")
		}
		return cert, key
	}
	f := start(t)
	serverCert, serverKey := pair("server")
	clientCert, clientKey := pair("client")
	strangerCert, strangerKey := pair("stranger")
	server := httptest.NewUnstartedServer(f.Handler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, Certificates: []tls.Certificate{must.Get(tls.LoadX509KeyPair(serverCert, serverKey))(t)}}
	server.StartTLS()
	t.Cleanup(server.Close)
	f.opts.Registry.URLs = []string{server.URL}
	for name, c := range map[string]struct {
		tls  sink.HTTPS
		good bool
	}{
		"the right certificate": {sink.HTTPS{CAFile: serverCert, CertFile: clientCert, KeyFile: clientKey}, true},
		"none":                  {sink.HTTPS{CAFile: serverCert}, false},
		"another's":             {sink.HTTPS{CAFile: serverCert, CertFile: strangerCert, KeyFile: strangerKey}, false},
		"an unknown server":     {sink.HTTPS{CAFile: clientCert, CertFile: clientCert, KeyFile: clientKey}, false},
		"another server's name": {sink.HTTPS{CAFile: serverCert, CertFile: clientCert, KeyFile: clientKey, ServerName: "other"}, false},
	} {
		f.opts.Registry.TLS = c.tls
		err := f.encoder(t).Reach(t.Context())
		if c.good != (err == nil) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil {
			waits(t, err, "start the schema registry, or correct encoding.registry.urls")
		}
	}
}
