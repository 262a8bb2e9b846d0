package admin

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/freeport"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/registry"
)

const numbersSchema = `{"type":"record","name":"Order","fields":[{"name":"n","type":"int"}]}`

// inSchemas has the configuration write Avro by a stand-in registry, which nobody may write to.
func (s *shadowed) inSchemas() *srfake.Registry {
	schemas := srfake.New()
	s.t.Cleanup(schemas.Close)
	schemas.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/versions") {
			s.t.Error("the comparison registers a schema")
		}
		return false
	})
	s.Encoding = registry.DefaultOptions()
	s.Encoding.Registry.URLs = []string{schemas.URL()}
	s.Encoding.Value.Format = registry.FormatAvro
	s.HTTP.Listen = must.Get(freeport.TakeAddress())(s.t)
	return schemas
}

// inAvro is the value of an event by the schema of the number.
func inAvro(number int, change func(*kgo.Record)) func(*kgo.Record) {
	return func(r *kgo.Record) {
		var event struct{ N int64 }
		_ = json.Unmarshal(r.Value, &event)
		r.Value = binary.AppendVarint(binary.BigEndian.AppendUint32([]byte{0}, uint32(number)), event.N)
		if change != nil {
			change(r)
		}
	}
}

// says waits for the state of the comparison.
func (s *shadowed) says(path, words string) {
	s.t.Helper()
	await.Until(s.t, words, func() bool {
		resp, err := http.Get("http://" + s.HTTP.Listen + path)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		var b bytes.Buffer
		_, err = b.ReadFrom(resp.Body)
		return err == nil && strings.Contains(b.String(), words)
	})
}

// counted are counts of the comparison at work.
func (s *shadowed) counted() (equal, renumbered int64) {
	resp, err := http.Get("http://" + s.HTTP.Listen + "/status")
	if err != nil {
		return 0, 0
	}
	defer resp.Body.Close()
	var now struct{ Equal, Renumbered int64 }
	_ = json.NewDecoder(resp.Body).Decode(&now) // it may be starting
	return now.Equal, now.Renumbered
}

// Records by schema are compared with the bytes of a look-up, which waits for a schema that is
// not there, and registers none. Another number of the same schema is told apart.
func TestShadowOfRecordsBySchema(t *testing.T) {
	s := newShadowed(t)
	schemas := s.inSchemas()
	end := s.begin(ShadowOptions{})
	s.write(1, 2, 4)
	s.says("/readyz", "our reader waits for a schema: the schema registry answers 404")
	id, _, err := schemas.RegisterSchema(shadowTopic+"-value", sr.Schema{Schema: numbersSchema})
	must.OK(t, err)
	s.publish(inAvro(id, nil), 1)
	s.publish(inAvro(id+70, nil), 2)
	s.publish(inAvro(id+71, nil), 4)
	s.confirm()
	r, err := end()
	wantClass(t, err, failure.Loss, "2 of 3 events differ from Debezium's records in the number of a schema, and in nothing else")
	must.Contain(t, failure.RemedyOf(err), "encoding.value")
	if r.Equal != 1 || r.Renumbered != 2 || r.Different != 0 {
		t.Errorf("%+v", r)
	}
	must.Contain(t, text(t, r), "2 equal but for the number of a schema", "2 in schema's number of the value", "waiting for a schema", "goes on")
	s.noSlotLeft()
}

// A schema from a file, to be registered by run, has no number yet; then Debezium registers it.
func TestShadowOfASchemaToBeRegistered(t *testing.T) {
	s := newShadowed(t)
	schemas := s.inSchemas()
	path := filepath.Join(t.TempDir(), "order.avsc")
	must.OK(t, os.WriteFile(path, []byte(numbersSchema), 0o600))
	s.Encoding.Value.Files, s.Encoding.Value.Register = map[string]string{shadowTopic + "-value": path}, true
	end := s.begin(ShadowOptions{})
	s.write(1)
	s.publish(inAvro(9, nil), 1)
	await.Until(t, "the event without a number", func() bool { _, renumbered := s.counted(); return renumbered == 1 })
	id, _, err := schemas.RegisterSchema(shadowTopic+"-value", sr.Schema{Schema: numbersSchema})
	must.OK(t, err)
	n := 1
	await.Until(t, "the number", func() bool {
		n += 3
		s.write(n)
		s.publish(inAvro(id, nil), n)
		equal, _ := s.counted()
		return equal > 0
	})
	s.confirm()
	r, err := end()
	wantClass(t, err, failure.Loss, "in the number of a schema, and in nothing else")
	must.Contain(t, fmt.Sprint(r.Parts), "not registered by ours")
	if r.Equal == 0 || r.Different+r.Missing+r.Additional+r.Bad != 0 {
		t.Errorf("%+v", r)
	}
}

// A comparison that ends while it waits for the registry says so, and not that all is equal
// (failure mode 223).
func TestShadowWithoutTheRegistry(t *testing.T) {
	s := newShadowed(t)
	schemas := s.inSchemas()
	id, _, err := schemas.RegisterSchema(shadowTopic+"-value", sr.Schema{Schema: numbersSchema})
	must.OK(t, err)
	s.Encoding.Registry.Timeout = 200 * time.Millisecond
	idle := idleAfterPending
	idleAfterPending = idleAfter
	t.Cleanup(func() { idleAfterPending = idle })
	schemas.Close()
	end := s.begin(ShadowOptions{})
	s.write(1)
	s.publish(inAvro(id, nil), 1)
	s.confirm()
	r, err := end()
	wantClass(t, err, failure.Transient, "events were not compared, as ours waited for a schema")
	if r.Equal+r.Differences() != 0 {
		t.Errorf("%+v", r)
	}
}
