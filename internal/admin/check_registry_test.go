package admin

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/registry"
)

const orderProto = `syntax = "proto3"; message Order { int64 id = 1; }`

func TestCheckLooksForSchemas(t *testing.T) {
	for _, c := range []struct {
		name    string
		do      func(*testing.T, *fixture, *srfake.Registry)
		check   string
		outcome Outcome
		words   string
	}{
		{"nothing wrong", seedOrder, "registry.connection", OK, "the schema registry answers"},
		{"rows that fit", seedOrder, "rows public.outbox", OK, "1 rows looked at"},
		{"a registry that is down", func(_ *testing.T, _ *fixture, s *srfake.Registry) { s.Close() }, "registry.connection", Fail, "ask the schema registry"},
		{"no schema", func(*testing.T, *fixture, *srfake.Registry) {}, "registry.schemas", Fail, "answers 404"},
		{"a schema of another format", func(t *testing.T, _ *fixture, s *srfake.Registry) {
			must.OK(t, seed(s, sr.Schema{Schema: `"string"`}))
		}, "registry.schemas", Fail, "is of the type AVRO"},
		{"a schema without the message", func(t *testing.T, f *fixture, s *srfake.Registry) {
			seedOrder(t, f, s)
			f.Encoding.Value.Message = "shop.Order"
		}, "registry.schemas", Fail, `has no message "shop.Order"`},
		{"rows that do not fit", func(t *testing.T, f *fixture, s *srfake.Registry) {
			must.OK(t, seed(s, sr.Schema{Schema: `syntax = "proto3"; message Order { int64 number = 1; }`, Type: sr.TypeProtobuf}))
		}, "rows public.outbox", Warn, "schema_mismatch"},
		{"a schema to be registered", withFile, "rows public.outbox", OK, "1 rows looked at"},
		{"a schema that cannot be registered", func(t *testing.T, f *fixture, s *srfake.Registry) {
			withFile(t, f, s)
			must.OK(t, seed(s, sr.Schema{Schema: `syntax = "proto3"; message Order { string id = 1; }`, Type: sr.TypeProtobuf}))
			s.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
				asks := strings.Contains(r.URL.Path, "/compatibility/")
				if asks {
					_, _ = w.Write([]byte(`{"is_compatible":false}`))
				}
				return asks
			})
		}, "registry.schemas", Fail, "not compatible"},
		{"numbers without a registry", func(_ *testing.T, f *fixture, _ *srfake.Registry) {
			f.Encoding.Value.Format, f.Encoding.Registry.URLs = registry.FormatEncoded, nil
		}, "registry.connection", Skipped, "not looked for"},
	} {
		t.Run(c.name, func(t *testing.T) {
			schemas := srfake.New()
			t.Cleanup(schemas.Close)
			f := empty(t)
			f.setup()
			f.insert("order", "1", `{"id": 1}`)
			f.Encoding = registry.DefaultOptions()
			f.Encoding.Registry.URLs = []string{schemas.URL()}
			f.Encoding.Value.Format = registry.FormatProtobuf
			c.do(t, f, schemas)
			f.wantCheck(c.check, c.outcome, c.words)
			if f.Encoding.Value.Register && c.outcome == OK && schemas.SubjectExists("outbox.event.order-value") {
				t.Error("check has registered the schema")
			}
		})
	}
}

func seed(s *srfake.Registry, schema sr.Schema) error {
	_, _, err := s.RegisterSchema("outbox.event.order-value", schema)
	return err
}

func seedOrder(t *testing.T, _ *fixture, s *srfake.Registry) {
	t.Helper()
	must.OK(t, seed(s, sr.Schema{Schema: orderProto, Type: sr.TypeProtobuf}))
}

func withFile(t *testing.T, f *fixture, _ *srfake.Registry) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "order.proto")
	must.OK(t, os.WriteFile(path, []byte(orderProto), 0o600))
	f.Encoding.Value.Files, f.Encoding.Value.Register = map[string]string{"outbox.event.order-value": path}, true
}
