package poll_test

import (
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/poll"
)

// A configured column of a mark must be there: by other columns, other rows
// would count as unpublished. No remedy adds a column to a table with marked rows.
func TestAMarkThatIsNotThere(t *testing.T) {
	const flag, at = `, published boolean NOT NULL DEFAULT false`, `, published_at timestamptz`
	for name, tt := range map[string]struct {
		columns              string
		published, at, after string // options; "": the default
		remedy               string // "": none, as the table can be polled
	}{
		"defaults":               {flag + at, "", "", "", ""},
		"no time":                {flag, "", "", "", ""},
		"only a time":            {at, "", "", "", ""},
		"nothing, deleted":       {"", "", "", poll.AfterPublishDelete, ""},
		"a mistyped flag":        {flag + at, "publishd", "", "", "did you mean source.poll.published: published?"},
		"another name":           {`, sent boolean, old boolean` + at, "done", "", "", "name a boolean column of the table (sent, old)"},
		"a flag of another type": {`, published boolean, sent int` + at, "sent", "", "", "did you mean source.poll.published: published?"},
		"no flag, a time":        {at, "sent", "", "", "remove source.poll.published"},
		"no flag, no time":       {"", "sent", "", "", `ADD COLUMN "sent" boolean`},
		"no flag, deleted":       {"", "sent", "", poll.AfterPublishDelete, "remove source.poll.published"},
		"a flag, deleted":        {flag, "publishd", "", poll.AfterPublishDelete, "did you mean source.poll.published: published?"},
		"a mistyped time":        {flag + at, "", "publishd_at", "", "did you mean source.poll.published_at: published_at?"},
		"a time that is missing": {flag, "", "sent_at", "", "remove source.poll.published_at"},
		"no time wanted":         {flag, "", "-", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil, `CREATE TABLE outbox (id bigserial PRIMARY KEY`+rest+tt.columns+`)`)
			for option, value := range map[*string]string{&w.parts.Published: tt.published, &w.parts.PublishedAt: tt.at, &w.parts.AfterPublish: tt.after} {
				if value != "" {
					*option = strings.TrimPrefix(value, "-")
				}
			}
			_, err := w.readTable(pg.Table{Schema: "public", Name: "outbox"})
			switch remedy := failure.RemedyOf(err); {
			case tt.remedy == "" && err != nil:
				t.Error(err)
			case tt.remedy != "" && (failure.ClassOf(err) != failure.Config || !strings.Contains(remedy, tt.remedy)):
				t.Errorf("got %v, remedy %q", err, remedy)
			case strings.Contains(remedy, "ALTER TABLE") && !strings.HasPrefix(tt.remedy, "ADD COLUMN"):
				t.Errorf("remedy %q", remedy)
			}
		})
	}
}
