package outbox_test

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/cdc-outbox/cdc-outbox/outbox"
)

func TestInvalidEventsReachNoDatabase(t *testing.T) {
	header := func(name, value string) func(*outbox.Event) {
		return func(e *outbox.Event) { e.Headers = map[string]string{name: value} }
	}
	payload := func(p any) func(*outbox.Event) { return func(e *outbox.Event) { e.Payload = p } }
	raw := func(p string) func(*outbox.Event) { return payload(json.RawMessage(p)) }
	var nilBytes []byte
	for name, tt := range map[string]struct {
		spoil func(*outbox.Event)
		field string
		says  string
	}{
		"no aggregate type":         {func(e *outbox.Event) { e.AggregateType = "" }, "AggregateType", "empty"},
		"no aggregate id":           {func(e *outbox.Event) { e.AggregateID = "" }, "AggregateID", "empty"},
		"no type":                   {func(e *outbox.Event) { e.Type = "" }, "Type", "empty"},
		"long aggregate type":       {func(e *outbox.Event) { e.AggregateType = strings.Repeat("é", 256) }, "AggregateType", "256 characters"},
		"long aggregate id":         {func(e *outbox.Event) { e.AggregateID = strings.Repeat("x", 256) }, "AggregateID", "256 characters"},
		"long type":                 {func(e *outbox.Event) { e.Type = strings.Repeat("x", 300) }, "Type", "300 characters"},
		"bad UTF-8":                 {func(e *outbox.Event) { e.AggregateID = "a\xff" }, "AggregateID", "UTF-8"},
		"NUL":                       {func(e *outbox.Event) { e.Type = "a\x00" }, "Type", "NUL"},
		"nil payload":               {payload(nil), "Payload", "NoPayload"},
		"nil pointer":               {payload((*uuid.UUID)(nil)), "Payload", "NoPayload"},
		"nil bytes":                 {payload(nilBytes), "Payload", "NoPayload"},
		"nil raw message":           {payload(json.RawMessage(nil)), "Payload", "NoPayload"},
		"empty payload":             {raw(""), "Payload", "not valid JSON"},
		"no JSON":                   {raw("{a: 1}"), "Payload", "not valid JSON"},
		"no JSON in bytes":          {payload([]byte("x")), "Payload", "not valid JSON"},
		"cut JSON":                  {raw(`{"a": "`), "Payload", "not valid JSON"},
		"two documents":             {raw(`{} {}`), "Payload", "not valid JSON"},
		"JSON too deep":             {raw(strings.Repeat("[", 10001) + strings.Repeat("]", 10001)), "Payload", "not valid JSON"},
		"JSON with bad UTF-8":       {raw("\"\xff\""), "Payload", "UTF-8"},
		"JSON with zero escape":     {raw(`{"a\u0000": 1}`), "Payload", `\u0000`},
		"marshalled zero":           {payload("\x00"), "Payload", `\u0000`},
		"half a pair":               {raw(`["\ud83c"]`), "Payload", "surrogate"},
		"half a pair, then another": {raw(`["\ud83c\u0041"]`), "Payload", "surrogate"},
		"wrong half":                {raw(`["\udf75\ud83c"]`), "Payload", "surrogate"},
		"huge number":               {raw(`[1e131072]`), "Payload", "number"},
		"tiny number":               {raw(`[-1.0E-16383]`), "Payload", "number"},
		"absurd exponent":           {raw(`1e99999999999999999999`), "Payload", "number"},
		"least exponent":            {raw(`1e-9223372036854775808`), "Payload", "number"},
		"cannot be marshalled":      {payload(math.Inf(1)), "Payload", "cannot be JSON"},
		"large payload":             {payload([]byte(`"` + strings.Repeat("x", outbox.DefaultMaxBytes) + `"`)), "Payload", "MaxBytes"},
		"header id":                 {header("id", "1"), `Headers["id"]`, "connector"},
		"header eventType":          {header("eventType", "1"), `Headers["eventType"]`, "connector"},
		"header schemaVersion":      {header("schemaVersion", "1"), `Headers["schemaVersion"]`, "connector"},
		"header cdc-lsn":            {header("cdc-lsn", "1"), `Headers["cdc-lsn"]`, "connector"},
		"header cdc-anything":       {header("cdc-anything", "1"), `Headers["cdc-anything"]`, "connector"},
		"header without name":       {header("", "1"), `Headers[""]`, "empty name"},
		"header name bad UTF-8":     {header("\xff", "1"), `Headers["\xff"]`, "UTF-8"},
		"header value with NUL":     {header("a", "\x00"), `Headers["a"]`, "NUL"},
		"header value bad UTF-8":    {header("a", "\xff"), `Headers["a"]`, "UTF-8"},
		"large headers":             {header("a", strings.Repeat("x", 128<<10)), "Headers", "131073 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			bad := order("2")
			tt.spoil(&bad)
			tx := &recorder{}
			_, err := outbox.WriteSQL(t.Context(), tx, order("1"), bad)
			var invalid *outbox.InvalidError
			if !errors.Is(err, outbox.ErrInvalid) || !errors.As(err, &invalid) || len(invalid.Problems) != 1 {
				t.Fatalf("error %v, want one problem", err)
			}
			if p := invalid.Problems[0]; p.Event != 1 || p.Field != tt.field || !strings.Contains(p.Err.Error(), tt.says) {
				t.Errorf("problem %+v, want event 1, field %s, %q", p, tt.field, tt.says)
			}
			if len(tx.statements) > 0 {
				t.Error("the database was asked")
			}
		})
	}
}

func TestValidEventsAtTheLimits(t *testing.T) {
	url := newDB(t, outbox.Schema)
	long := strings.Repeat("茶", 255)
	for name, e := range map[string]outbox.Event{
		"long names":     {AggregateType: long, AggregateID: long, Type: long, Payload: json.RawMessage("null")},
		"large payload":  {AggregateType: "a", AggregateID: "b", Type: "c", Payload: strings.Repeat("x", outbox.DefaultMaxBytes-len(`b""`))},
		"large headers":  {AggregateType: "a", AggregateID: "b", Type: "c", Payload: 1, Headers: map[string]string{"a": strings.Repeat(`"`, 128<<10-1)}},
		"deep JSON":      {AggregateType: "a", AggregateID: "b", Type: "c", Payload: json.RawMessage(strings.Repeat("[", 9999) + strings.Repeat("]", 9999))},
		"numbers":        {AggregateType: "a", AggregateID: "b", Type: "c", Payload: json.RawMessage(`[1e131071, -1e-16383, 0.5E+3]`)},
		"surrogate pair": {AggregateType: "a", AggregateID: "b", Type: "c", Payload: json.RawMessage(`"\ud83c\udf75 \\u0000 \\\""`)},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := outbox.Write(t.Context(), begin(t, url), e); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAllProblemsAreToldAtOnce(t *testing.T) {
	twice := order("1")
	twice.ID = uuid.MustParse("0190b8f0-0000-7000-8000-000000000001")
	_, err := outbox.WriteSQL(t.Context(), &recorder{}, twice, outbox.Event{}, order("2"), twice,
		outbox.Event{AggregateType: "\xff", AggregateID: "a", Payload: 1})
	const want = "invalid event: event 1: AggregateType is empty; event 1: AggregateID is empty; event 1: Type is empty; " +
		"event 1: Payload is nil: use NoPayload for an event without one; event 3: ID is that of event 0 too; and 2 more"
	if err == nil || err.Error() != want {
		t.Errorf("error %v\nwant  %s", err, want)
	}
	var invalid *outbox.InvalidError
	if !errors.As(err, &invalid) || len(invalid.Problems) != 7 {
		t.Errorf("problems %v, want 7", invalid)
	}
	var p outbox.Problem
	if !errors.As(err, &p) || p.Event != 1 || p.Unwrap() != p.Err {
		t.Errorf("first problem %+v, want that of event 1", p)
	}
}

func TestErrorOfAPayloadStaysInside(t *testing.T) {
	failed := errors.New("no")
	e := order("1")
	e.Payload = unmarshallable{failed}
	if _, err := outbox.WriteSQL(t.Context(), &recorder{}, e); !errors.Is(err, failed) {
		t.Errorf("error %v, want %v inside", err, failed)
	}
}

type unmarshallable struct{ err error }

func (u unmarshallable) MarshalJSON() ([]byte, error) { return nil, u.err }

func TestHeadersNeedAColumnForWriteOnly(t *testing.T) {
	w := newWriter(t, outbox.Options{Table: outbox.Table{NoHeaders: true}})
	e := order("1")
	e.Headers = map[string]string{"a": "b"}
	if _, err := w.Write(t.Context(), outbox.SQL(&recorder{}), e); err == nil || !strings.Contains(err.Error(), "NoHeaders") {
		t.Errorf("Write: %v", err)
	}
	if _, err := w.Emit(t.Context(), outbox.SQL(&recorder{}), e); err != nil {
		t.Errorf("Emit: %v", err)
	}
}
