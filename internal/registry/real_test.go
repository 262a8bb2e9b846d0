package registry_test

import (
	"bytes"
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

// A registry of another vendor has the schemas, and the deserializer of a third reads the
// records, and writes the same bytes: make test-registry.
func TestOthersReadTheRecords(t *testing.T) {
	url, python := os.Getenv("CDC_OUTBOX_REGISTRY_URL"), os.Getenv("CDC_OUTBOX_REGISTRY_PYTHON")
	if url == "" || python == "" {
		t.Skip("make test-registry runs it")
	}
	topic := fmt.Sprintf("orders%d", time.Now().UnixNano())
	file := filepath.Join(t.TempDir(), "order.avsc")
	must.OK(t, os.WriteFile(file, []byte(shopOrder), 0o600))
	opts := registry.DefaultOptions()
	opts.Registry.URLs = []string{url}
	opts.Value.Format, opts.Value.Files, opts.Value.Register = registry.FormatAvro, map[string]string{topic + "-value": file}, true
	at := func(payload string) *transform.Event {
		ev := event("k", payload)
		ev.Record.Topic = topic
		return ev
	}

	lookUp := opts
	lookUp.Value.Files, lookUp.Value.Register = nil, false
	waits(t, encode(t, connected(t, lookUp), at(`{}`)), "register a schema under subject "+topic+"-value")
	must.OK(t, connected(t, opts).Reach(t.Context()))

	seed := time.Now().UnixNano()
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(uint64(seed), 0))
	var lines bytes.Buffer
	const records = 2000
	registering, looking := connected(t, opts), connected(t, lookUp)
	for range records {
		payload := string(must.Get(json.Marshal(order(r)))(t))
		one, two := at(payload), at(payload)
		must.OK(t, encode(t, registering, one))
		must.OK(t, encode(t, looking, two))
		if !bytes.Equal(one.Record.Value, two.Record.Value) {
			t.Fatalf("%s: %x with registration, %x by look-up", payload, one.Record.Value, two.Record.Value)
		}
		fmt.Fprintf(&lines, "%s\t%s\t%s\n", topic, hex.EncodeToString(one.Record.Value), payload)
	}
	cmd := exec.CommandContext(t.Context(), python, "testdata/deserialize.py", url)
	cmd.Stdin = &lines
	out, err := cmd.Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		t.Fatalf("%s", failed.Stderr)
	}
	must.OK(t, err)
	if got := strings.TrimSpace(string(out)); got != fmt.Sprint(records) {
		t.Errorf("read %s of %d records", got, records)
	}
}

func connected(t *testing.T, opts registry.Options) *registry.Encoder {
	t.Helper()
	e := must.Get(registry.New(opts, "eventType"))(t)
	t.Cleanup(e.Close)
	return e
}
