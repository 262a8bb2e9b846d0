package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/audit"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/delivery"
)

// ContentReport compares rows, as published now, with their records: key, value and
// headers, but for positions and times, and a partition named by the row.
type ContentReport struct {
	// Compared rows have a record in their topic. Equal rows have an equal record;
	// Different rows have none; Changed rows have none, and were changed since.
	Compared  int64 `json:"compared"`
	Equal     int64 `json:"equal"`
	Different int64 `json:"different"`
	Changed   int64 `json:"changed"`
	// Elsewhere counts missing events, if a record with their content is in another
	// topic.
	Elsewhere int64 `json:"elsewhere"`
	// Days are the tables and days (UTC) of the rows.
	Days []ContentDay `json:"days"`
	// Differences are the first, in the order of publication.
	Differences []Difference `json:"differences"`
}

// ContentDay has the rows of a table and a day. Equal contents, in any order, have equal
// sums.
type ContentDay struct {
	Table     string    `json:"table"`
	Day       time.Time `json:"day,omitzero"` // zero: rows without a time
	Rows      int64     `json:"rows"`
	Compared  int64     `json:"compared"`
	Equal     int64     `json:"equal"`
	RowSum    string    `json:"row_sum"`
	RecordSum string    `json:"record_sum"`
}

// Difference is a row without an equal record in its topic, with a record of its id.
type Difference struct {
	ID        string `json:"id"`
	Key       string `json:"key"` // of the row
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	// Parts that differ: key, value, header NAME, topic, partition.
	Parts []string `json:"parts"`
	// Row is unchanged, changed or unknown, since the publication of the record.
	Row audit.Version `json:"row"`
}

// contents compares the contents, and names the differing parts.
func (a *auditor) contents(ctx context.Context) (*ContentReport, error) {
	counts, err := a.rows.Contents.Compare()
	if err != nil {
		return nil, err
	}
	r := &ContentReport{
		Compared: counts.Compared, Equal: counts.Equal, Different: counts.Different, Changed: counts.Changed, Elsewhere: counts.Elsewhere,
		Days: []ContentDay{}, Differences: []Difference{},
	}
	for _, d := range counts.Days {
		r.Days = append(r.Days, ContentDay{d.Table.String(), d.Day, d.Rows, d.Compared, d.Equal, d.RowSum.String(), d.RecordSum.String()})
	}
	slices.SortFunc(r.Days, func(a, b ContentDay) int {
		if a.Table != b.Table {
			return strings.Compare(a.Table, b.Table)
		}
		return a.Day.Compare(b.Day)
	})
	if rest := a.result.Found - counts.Compared; rest > 0 {
		a.result.Limits = append(a.result.Limits, fmt.Sprintf("the contents of %d events are not compared: they are dead letters or parked, or their rows would be bad events now", rest))
	}
	return r, a.name(ctx, r, counts.First)
}

// name reads rows and records again, for the parts that differ.
func (a *auditor) name(ctx context.Context, r *ContentReport, differences []audit.Difference) error {
	topics := a.reread()
	entries := make([]audit.Entry, len(differences))
	for i, d := range differences {
		entries[i] = d.Row
	}
	return a.rows.Fetch(ctx, entries, func(group []audit.Entry, items []delivery.Item) error {
		of := differences[:len(group)]
		differences = differences[len(group):]
		for i, it := range items {
			rec, err := topics.record(ctx, of[i].Record, of[i].Row.Key)
			if err != nil {
				return err
			}
			d := Difference{
				ID: shortened(string(it.Event.ID)), Key: shortened(string(it.Event.Record.Key)), Topic: a.topics.Name(of[i].Record.Log),
				Partition: of[i].Record.Partition, Offset: of[i].Record.Offset, Row: of[i].Version, Parts: []string{},
			}
			if rec != nil {
				d.Parts = audit.Differing(&it.Event.Record, rec)
			}
			r.Differences = append(r.Differences, d)
		}
		return nil
	})
}

// lines adds the report, of nil nothing.
func (r *ContentReport) lines(b *lines) {
	if r == nil {
		return
	}
	b.printf("content: %d compared, %d as their rows, %d different, %d changed after publication; %d tables and days (UTC)\n", r.Compared, r.Equal, r.Different, r.Changed, len(r.Days))
	unequal := slices.DeleteFunc(slices.Clone(r.Days), func(d ContentDay) bool { return d.Equal == d.Compared })
	for i, d := range unequal {
		if i == mostTopics {
			b.printf("    and %d more\n", len(unequal)-i)
			break
		}
		on := "without a time"
		if !d.Day.IsZero() {
			on = d.Day.Format(time.DateOnly)
		}
		b.printf("%s %s: %d of %d differ; sum of the contents of rows: %s, of records: %s\n", d.Table, on, d.Compared-d.Equal, d.Compared, d.RowSum, d.RecordSum)
	}
	for _, d := range r.Differences {
		var parts []string
		for _, part := range d.Parts {
			parts = append(parts, plain(part))
		}
		b.printf("    %s  key %q  %s  %d/%d  differs in %s%s\n", plain(d.ID), d.Key, d.Topic, d.Partition, d.Offset, strings.Join(parts, ", "), versionWords[d.Row])
	}
	if more := r.Different + r.Changed + r.Elsewhere - int64(len(r.Differences)); more > 0 && len(r.Differences) > 0 {
		b.printf("    and %d more\n", more)
	}
}

// versionWords are for people.
var versionWords = map[audit.Version]string{
	audit.Changed: "; the row was changed after publication, or written behind a SAVEPOINT",
	audit.Untold:  "; whether the row was changed after publication is not known: the record has no cdc-xid",
}
