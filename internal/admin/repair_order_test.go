package admin

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// The room of a rolled-back insert, once vacuumed, takes the later rows of a
// transaction: their places are before those of the first ones.
func TestMissingEventsOfATransactionAreInTheOrderOfItsCommands(t *testing.T) {
	for name, c := range map[string]struct {
		column              string // with the time
		savepoints, tracked bool
	}{
		"a time in microseconds, with savepoints": {"created_at timestamptz DEFAULT '2026-01-01 00:00:00.123456Z'", true, false},
		"two transactions of one millisecond":     {"created_at timestamptz DEFAULT '2026-01-01 00:00:00.123Z'", false, false},
		"the time of a commit, with savepoints":   {"created_at timestamptz DEFAULT '2026-01-01 00:00:00.123Z'", true, true},
		"no time":                                 {"nothing int", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			server := pgtest.Shared(t)
			if c.tracked {
				server = pgtest.Start(t, pgtest.Setting("track_commit_timestamp", "on"))
			}
			p := publishedIn(t, newFixture(t, server.NewDatabase(t)))
			p.exec(`DROP TABLE outbox CASCADE`,
				`CREATE TABLE outbox (id uuid PRIMARY KEY, aggregatetype text DEFAULT 'order', aggregateid text DEFAULT 'k', type text DEFAULT 'T', payload text, `+c.column+`)`,
				`ALTER PUBLICATION cdc_outbox ADD TABLE outbox`)
			insert := func(n int) {
				p.exec(fmt.Sprintf(`INSERT INTO outbox (id, payload) VALUES ('%s', '%d' || repeat(' ', 900))`, eventID(n), n))
			}
			p.exec(`BEGIN`)
			for n := range 80 {
				insert(n)
			}
			p.exec(`ROLLBACK`)
			// A row of another key keeps the last page.
			p.exec(`INSERT INTO outbox (id, aggregateid) VALUES ('` + eventID(0) + `', 'other')`)
			var want []string
			for _, begin := range []int{1, 25} {
				if begin == 1 || !c.savepoints {
					p.exec(`BEGIN`)
				}
				for n := begin; n < begin+24; n++ {
					if n == 13 {
						pgtest.Exec(t, p.Source.URL.Reveal(), `VACUUM outbox`)
					}
					if c.savepoints && n%3 == 0 {
						p.exec(`SAVEPOINT s`)
					}
					insert(n)
					if c.savepoints && n%3 == 0 {
						p.exec(`RELEASE s`)
					}
					want = append(want, fmt.Sprint(n))
				}
				if begin == 25 || !c.savepoints {
					p.exec(`COMMIT`)
				}
			}
			var inPlace bool
			must.OK(t, p.conn.QueryRow(p.ctx(), `SELECT bool_and(later) FROM (SELECT ctid > lag(ctid) OVER (ORDER BY trim(payload)::int) FROM outbox WHERE aggregateid = 'k') AS o(later)`).Scan(&inPlace))
			if inPlace {
				t.Fatal("the rows lie in their order: nothing is tested")
			}
			if r := p.mend(AuditOptions{}); r.Published != int64(len(want)+1) {
				t.Errorf("%+v", r)
			}
			replayed := must.Get(Replay(p.ctx(), p.Config, ReplayOptions{AuditOptions: p.options(AuditOptions{}), Name: "again", To: "replays", Publish: true}))(t)
			if replayed.Published != int64(len(want)+1) {
				t.Errorf("%+v", replayed)
			}
			for _, topic := range []string{"outbox.event.order", "replays"} {
				var got []string
				for _, rec := range p.broker.Consume(t, []string{topic}, kafkatest.Count(len(want)+1)) {
					if string(rec.Key) == "k" {
						got = append(got, strings.TrimSpace(string(rec.Value)))
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s: %v, want %v", topic, got, want)
				}
			}
		})
	}
}
