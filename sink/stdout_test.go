package sink

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

func TestStdoutWritesOneLineAnEvent(t *testing.T) {
	var out bytes.Buffer
	s := NewStdout(&out)
	defer s.Close()
	text := event("orders", "k<1>", 0, 5)
	text.Record.Value = []byte(`{"a":"b & c"}`)
	binary := event("orders", "", 0, 6)
	binary.Record.Value = []byte{0xff, 0}
	binary.Record.Headers = append(binary.Record.Headers, kgo.RecordHeader{Key: "raw", Value: []byte{0xfe}}, kgo.RecordHeader{Key: "null"})
	must.OK(t, s.Deliver(t.Context(), []*transform.Event{text, binary}, nil))
	bad := &transform.BadEvent{Reason: transform.ReasonNullKey, Err: errors.New("aggregateid is NULL")}
	must.OK(t, s.DeadLetter(t.Context(), &transform.Event{Table: "public.outbox"}, bad))
	want := `{"topic":"orders","key":"k<1>","value":"{\"a\":\"b & c\"}","headers":[["id","id-5"]],"timestamp":"2026-08-01T12:30:00.123Z","table":"public.outbox","id":"id-5","lsn":"1/5","seq":5,"xid":700}
{"topic":"orders","key":null,"value":{"base64":"/wA="},"headers":[["id","id-6"],["raw",{"base64":"/g=="}],["null",null]],"timestamp":"2026-08-01T12:30:00.123Z","table":"public.outbox","id":"id-6","lsn":"1/6","seq":6,"xid":700}
{"topic":"","key":null,"value":null,"headers":[],"timestamp":"0001-01-01T00:00:00Z","table":"public.outbox","id":null,"lsn":"0/0","seq":0,"xid":0,"reason":"null_key","error":"aggregateid is NULL"}
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errBroken }

var errBroken = errors.New("broken pipe")

func TestStdoutReportsWhatWasNotWritten(t *testing.T) {
	err := NewStdout(brokenPipe{}).Deliver(t.Context(), events("orders", 1), nil)
	if !errors.Is(err, errBroken) || !strings.Contains(failure.RemedyOf(err), "nothing that was not written was confirmed") {
		t.Errorf("got %v, remedy %q", err, failure.RemedyOf(err))
	}
}

// wholeLines wants whole lines in each write.
type wholeLines struct{ t *testing.T }

func (w wholeLines) Write(p []byte) (int, error) {
	if len(p) == 0 || p[len(p)-1] != '\n' {
		w.t.Errorf("a write of %d bytes ends within a line", len(p))
	}
	return len(p), nil
}

// Pipelines share standard output: lines must not mix.
func TestStdoutWritesWholeLines(t *testing.T) {
	s := NewStdout(wholeLines{t})
	defer s.Close()
	evs := events("orders", 1000)
	evs[500].Record.Value = bytes.Repeat([]byte("x"), 200<<10)
	must.OK(t, s.Deliver(t.Context(), evs, noReject(t)))
}
