package admin

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cdc-outbox/cdc-outbox/transform"
)

// consolePrinter prints an event for a person: its destination, then headers,
// then value.
type consolePrinter struct{ w io.Writer }

func (p consolePrinter) print(_ context.Context, ev *transform.Event, bad *transform.BadEvent) error {
	rec := &ev.Record
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s  key %s\n", ev.Time().UTC().Format(time.RFC3339Nano), cmp.Or(rec.Topic, "(no topic)"), showText(rec.Key))
	if bad != nil {
		fmt.Fprintf(&b, "    BAD EVENT %s, row at %s/%d of %s\n", bad, ev.Position.CommitLSN, ev.Position.Seq, ev.Table)
	}
	headers := make([]string, len(rec.Headers))
	for i, h := range rec.Headers {
		headers[i] = h.Key + "=" + showText(h.Value)
	}
	fmt.Fprintf(&b, "    %s\n    %s\n", strings.Join(headers, "  "), showText(rec.Value))
	_, err := io.WriteString(p.w, b.String())
	return err
}

// showText shows text as is, unless it would break the line or disturb the
// terminal, and null as null.
func showText(v []byte) string {
	if v == nil {
		return "null"
	}
	s := string(v)
	control := func(r rune) bool { return r < ' ' || r == 0x7f }
	if s == "" || !utf8.ValidString(s) || strings.ContainsFunc(s, control) {
		return strconv.Quote(s)
	}
	return s
}
