package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// keyReport shows a record.
type keyReport struct{ storage.Record }

// fields lists the record's fields, in the order of the report.
func (r keyReport) fields() [][2]string {
	all := [][2]string{
		{"scope", r.Key.Scope},
		{"id", r.Key.ID},
		{"state", r.State.String()},
	}
	if r.State == storage.Absent {
		return all
	}
	all = append(all, [2]string{"attempts", fmt.Sprint(r.Attempts)})
	for _, part := range []struct {
		name string
		n    int
	}{{"vanished", r.Vanished}, {"excused", r.Excused}} {
		if part.n > 0 {
			all = append(all, [2]string{part.name, fmt.Sprint(part.n)})
		}
	}
	all = append(all, [2]string{"fence", fmt.Sprint(r.Fence)})
	for _, field := range [][2]string{
		{"owner", r.Owner},
		{"lease_until", timeShown(r.LeaseUntil)},
		{"retry_at", timeShown(r.RetryAt)},
		{"reason", r.Reason},
		{"fingerprint", string(r.Fingerprint)},
		{"updated_at", timeShown(r.UpdatedAt)},
		{"expires_at", timeShown(r.ExpiresAt)},
		{"result", string(r.Result)},
	} {
		if field[1] != "" {
			all = append(all, field)
		}
	}
	return all
}

// WriteText implements report. Values are quoted where they could upset a
// terminal.
func (r keyReport) WriteText(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, field := range r.fields() {
		_, _ = fmt.Fprintf(table, "%s\t%s\n", field[0], printable(field[1]))
	}
	return table.Flush()
}

// printable quotes a text holding more than printable characters.
func printable(text string) string {
	if quoted := fmt.Sprintf("%q", text); quoted[1:len(quoted)-1] != text {
		return quoted
	}
	return text
}

// MarshalJSON implements json.Marshaler.
func (r keyReport) MarshalJSON() ([]byte, error) {
	fields := map[string]any{}
	for _, field := range r.fields() {
		fields[field[0]] = field[1]
	}
	if r.State != storage.Absent {
		fields["attempts"], fields["vanished"], fields["excused"], fields["fence"] = r.Attempts, r.Vanished, r.Excused, r.Fence
	}
	return json.Marshal(fields)
}

// releaseReport shows everything released.
type releaseReport struct {
	Before keyReport `json:"before"`
}

// WriteText implements report.
func (r releaseReport) WriteText(w io.Writer) error {
	if r.Before.State == storage.Absent {
		fmt.Fprintln(w, "nothing to release: the store does not know the message")
		return nil
	}
	fmt.Fprintln(w, "released: it is run when it comes again; its record was")
	if err := r.Before.WriteText(w); err != nil {
		return err
	}
	if r.Before.State == storage.Processing && r.Before.LeaseUntil.After(time.Now()) {
		fmt.Fprintln(w, "warning: the lease was live: if its holder still runs, the work is done twice, and the holder's result is discarded")
	}
	return nil
}

// purgeReport shows how much was forgotten.
type purgeReport struct {
	Purged int `json:"purged"`
}

// WriteText implements report.
func (r purgeReport) WriteText(w io.Writer) error {
	_, err := fmt.Fprintf(w, "purged %d messages\n", r.Purged)
	return err
}
