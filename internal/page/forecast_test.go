package page_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/browser"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// An open transaction makes the slot keep more and more log: a reader sees the time
// until the limit, and the culprit. Once the server is away, neither is known.
func TestE2EPageForecastsTheEndOfTheSlot(t *testing.T) {
	tab := browser.Open(t)
	server := pgtest.Start(t, pgtest.Setting("max_slot_wal_keep_size", "100GB"))
	db, broker := server.NewDatabase(t), kafkatest.Start(t)
	c := start(t, configure(t, db, broker, "outbox"))
	c.awaitReady(t)
	tab.Do(chromedp.EmulateViewport(1160, 1000), chromedp.Navigate(c.base))
	shows(t, tab, "#headline", "All is well, and quiet")

	culprit := must.Get(pgx.Connect(t.Context(), db))(t)
	defer culprit.Close(t.Context())
	pgtest.Execute(t, culprit, `SET application_name = 'a long report'`, `BEGIN`,
		`INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES ('order', '1', 'OrderPlaced', '{}')`)
	stop := writer(t, db, `SELECT pg_logical_emit_message(false, 'noise', repeat(md5(($1::int)::text), 1 << 16))`)
	shows(t, tab, "#headline", "The slot keeps more and more log")
	held := fmt.Sprintf("Held back by pid %d", culprit.PgConn().PID())
	shows(t, tab, ".reasons", "max_slot_wal_keep_size", held, "a long report")
	await.Until(t, "the forecast of /status", func() bool {
		told, known := c.status(t, "")["forecast"].(map[string]any)
		shown, said := reached(tab.Text(".reasons"))
		// Another second has another rate.
		return known && said && told["limit_in_seconds"] != nil && shown > told["limit_in_seconds"].(float64)/2 && shown < told["limit_in_seconds"].(float64)*2 &&
			strings.Contains(told["held_back_by"].(string), "a long report")
	})
	shows(t, tab, `[data-chart="Log kept by the slot"] strong`, "MiB")
	if title := browser.Eval[string](tab, `document.title`); !strings.HasPrefix(title, "!") {
		t.Errorf("the title is %q", title)
	}
	if got := browser.Eval[string](tab, `document.querySelector('[data-node="slot"]').dataset.state`); got != "warn" {
		t.Errorf("the slot is drawn as %q", got)
	}
	stop()

	server.Stop(t, pgtest.Immediate)
	shows(t, tab, "#headline", "Standing still for")
	shows(t, tab, `[data-node="slot"]`, "keeps\n–", "not confirmed\n–", "state\n–")
	shows(t, tab, `[data-node="tables"]`, "log ends at\n–")
	for _, chart := range []string{"Log kept by the slot", "Log not confirmed", "Lag"} {
		await.Until(t, chart+" to be unknown", func() bool { return tab.Text(`[data-chart="`+chart+`"] strong`) == "–" })
	}
	if got := tab.Text(".reasons"); strings.Contains(got, "At this rate") || c.status(t, "")["forecast"] != nil {
		t.Errorf("while PostgreSQL is away it shows %q, and /status %v", got, c.status(t, ""))
	}
	server.Resume(t)
	shows(t, tab, `[data-node="slot"]`, "of log")
	if got := tab.Complaints(); len(got) != 0 {
		t.Errorf("the console has %q", got)
	}
}

// reached is the shown number of seconds until the limit.
func reached(text string) (seconds float64, said bool) {
	_, text, said = strings.Cut(text, "is reached in ")
	text, _, _ = strings.Cut(text, ".")
	for _, part := range regexp.MustCompile(`(\d+) (d|h|min|s)\b`).FindAllStringSubmatch(text, -1) {
		n, _ := strconv.ParseFloat(part[1], 64)
		seconds += n * map[string]float64{"d": 86400, "h": 3600, "min": 60, "s": 1}[part[2]]
	}
	return seconds, said
}
