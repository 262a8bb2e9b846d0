package retention_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/retention"
	"github.com/cdc-outbox/cdc-outbox/outbox"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestRowsGoWhenOldAndConfirmed(t *testing.T) {
	k := start(t, outbox.Schema)
	k.insert("old", "1 hour")
	k.insert("young", "-1 hour")

	k.passes(2)
	if got := k.count("TRUE"); got != 2 {
		t.Fatalf("%d rows left, want 2: nothing is confirmed", got)
	}
	await.Until(k.t, "the old row to go", func() bool { k.confirmAll(); return k.count("type = 'old'") == 0 })
	await.Until(k.t, "word of it", func() bool { return k.observer.deleted.Load() > 0 })
	k.passes(2)
	if got := k.count("type = 'young'"); got != 1 {
		t.Error("the young row went")
	}
	if got := k.observer.deleted.Load(); got != 1 {
		t.Errorf("told of %d rows, want 1", got)
	}
}

func TestLockedRowsAreLeftForLater(t *testing.T) {
	k := start(t, outbox.Schema)
	k.insert("locked", "1 hour")
	k.exec(`INSERT INTO outbox (aggregatetype, aggregateid, type, payload, created_at)
		SELECT 'a', n::text, 'free', to_jsonb(repeat('x', 1500)), now() - interval '1 hour' FROM generate_series(1, 500) n`)
	tx := must.Get(k.conn.Begin(t.Context()))(t)
	must.Get(tx.Exec(t.Context(), `SELECT FROM outbox WHERE type = 'locked' FOR UPDATE`))(t)
	k.confirmAll()
	await.Until(k.t, "a failed pass", func() bool { return k.observer.failed.Load() > 0 })
	await.Until(k.t, "the rows on other pages to go", func() bool { k.confirmAll(); return k.count("TRUE") < 200 })
	must.OK(t, tx.Rollback(t.Context()))
	await.Until(k.t, "all rows to go", func() bool { k.confirmAll(); return k.count("TRUE") == 0 })
}

func TestConnectionIsOpenedAgain(t *testing.T) {
	k := start(t, outbox.Schema)
	k.passes(1)
	k.insert("old", "1 hour")
	if _, err := k.conn.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name = 'cdc-outbox'`); err != nil {
		t.Fatal(err)
	}
	await.Until(k.t, "the row to go", func() bool { k.confirmAll(); return k.count("TRUE") == 0 })
}

// forLong keeps rows for a week, as people do.
func forLong(o *retention.Parts) { o.After = 7 * 24 * time.Hour }

// However long rows are kept, old rows go soon after a start: a connector started
// anew each hour would otherwise never delete anything.
func TestFirstRowsGoSoonAfterAStart(t *testing.T) {
	k := startWith(t, outbox.Schema+`;
		INSERT INTO outbox (aggregatetype, aggregateid, type, created_at) VALUES ('a', '1', 'old', now() - interval '8 days')`, forLong)
	await.Until(k.t, "the old row to go", func() bool { k.confirmAll(); return k.count("TRUE") == 0 })
}

// However long rows are kept, partitions are created in time: without them writers
// fail.
func TestPartitionsAreCreatedInTime(t *testing.T) {
	k := startWith(t, outbox.PartitionedSchema+`; DROP TABLE outbox_default`, func(o *retention.Parts) {
		forLong(o)
		o.PartitionSpan, o.PartitionsAhead = retention.SpanHour, 1
	})
	partitions := func() bool {
		return k.value(`SELECT count(*) FROM pg_inherits WHERE inhparent = 'outbox'::regclass`) >= 2
	}
	await.Until(k.t, "partitions", partitions)
	k.exec(`DO $$ BEGIN EXECUTE (SELECT 'DROP TABLE ' || string_agg(inhrelid::regclass::text, ',') FROM pg_inherits WHERE inhparent = 'outbox'::regclass); END $$`)
	await.Until(k.t, "partitions that are missing later", partitions)
}

// However long rows are kept, and whatever an operator's comment, an expired
// partition goes soon.
func TestExpiredPartitionGoesSoon(t *testing.T) {
	k := startWith(t, outbox.PartitionedSchema+`; DROP TABLE outbox_default`+oldPartition+`; COMMENT ON TABLE outbox_p20200101 IS 'a note'`, forLong)
	k.gone()
}

// A failure names the remedy, and waits for longer: an attempt may hold writers
// up.
func TestFailureIsNotRepeatedAtOnce(t *testing.T) {
	k := startWith(t, outbox.Schema, func(o *retention.Parts) {
		forLong(o)
		o.Column = "written_at"
	})
	k.insert("old", "8 days")
	if err := k.failure(); !strings.Contains(failure.RemedyOf(err), "retention.column") {
		t.Errorf("failed with %v, remedy %q", err, failure.RemedyOf(err))
	}
	k.passes(20)
	if n := k.observer.failed.Load(); n != 1 {
		t.Errorf("failed %d times by the 20th look", n)
	}
}

// A trigger's function sees our search path.
func TestTriggerThatNeedsAnotherSearchPathIsNamed(t *testing.T) {
	k := startWith(t, outbox.Schema+`; CREATE TABLE archive (LIKE outbox);
		CREATE FUNCTION archive() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO archive SELECT OLD.*; RETURN OLD; END $$;
		CREATE TRIGGER archive BEFORE DELETE ON outbox FOR EACH ROW EXECUTE FUNCTION archive();
		INSERT INTO outbox (aggregatetype, aggregateid, type, created_at) VALUES ('a', '1', 'old', now() - interval '8 days')`, forLong) // before the only pass
	if err := k.failure(); !strings.Contains(failure.RemedyOf(err), "SET search_path") {
		t.Errorf("failed with %v, remedy %q", err, failure.RemedyOf(err))
	}
}

// Another table with the name of a partition must be reported: the rows of the
// partition's time have no place.
func TestPartitionsNameIsTaken(t *testing.T) {
	p := must.Get(outbox.Table{}.Partition(outbox.Daily, time.Now().Add(24*time.Hour)))(t)
	k := start(t, outbox.PartitionedSchema+`; CREATE TABLE `+p.Name+` (id int)`)
	err := k.failure()
	if !strings.Contains(err.Error(), p.Name) || !strings.Contains(failure.RemedyOf(err), "ATTACH") {
		t.Errorf("failed with %v, remedy %q", err, failure.RemedyOf(err))
	}
	await.Until(k.t, "the other partitions", func() bool { return k.observer.created.Load() >= 2 })
}

// TestLateCommitStays keeps a transaction open from before to after a
// confirmation: the row is old when it becomes visible, and is not published.
func TestLateCommitStays(t *testing.T) {
	server := pgtest.Start(t, pgtest.Setting("max_prepared_transactions", "2"))
	for name, tx := range map[string]struct{ begin, commit []string }{
		"transaction": {
			[]string{`BEGIN`, insertLate}, []string{`COMMIT`}},
		"subtransaction": {
			[]string{`BEGIN`, `SAVEPOINT s`, insertLate, `RELEASE s`}, []string{`COMMIT`}},
		"subtransaction that began late": {
			[]string{`BEGIN`, `SELECT pg_current_xact_id()`}, []string{`SAVEPOINT s`, insertLate, `COMMIT`}},
		"prepared transaction": {
			[]string{`BEGIN`, insertLate, `PREPARE TRANSACTION 'late'`}, []string{`COMMIT PREPARED 'late'`}},
	} {
		t.Run(name, func(t *testing.T) {
			k := startOn(t, server, outbox.Schema, func(*retention.Parts) {})
			writer := k.connect()
			writer.exec(tx.begin...)
			k.passes(1) // a horizon is taken while the transaction is open
			confirmed := k.confirmAll()
			k.passes(1)
			writer.exec(tx.commit...)
			if confirmed >= k.end() {
				t.Fatal("the late transaction does not end beyond the confirmed position")
			}
			k.wantStays("late")
		})
	}
}

// TestRewrittenRowStays writes, after the confirmed position, rows with unusual
// headers.
func TestRewrittenRowStays(t *testing.T) {
	for name, write := range map[string][]string{
		"frozen by vacuum": {insertLate, `VACUUM FREEZE outbox`},
		"written frozen":   {`BEGIN`, `TRUNCATE outbox`, copyFrozen, `COMMIT`},
		"table rewritten":  {insertLate, `VACUUM FULL outbox`},
		"updated":          {insertLate, `UPDATE outbox SET headers = '{}'`},
		"moved":            {`INSERT INTO outbox (aggregatetype, aggregateid, type) VALUES ('a', '1', 'late')`, `UPDATE outbox SET created_at = '2020-01-01'`},
	} {
		t.Run(name, func(t *testing.T) {
			k := start(t, outbox.Schema)
			k.passes(1)
			k.confirmAll()
			k.passes(1)
			k.exec(write...)
			k.wantStays("late")
		})
	}
}

// wantStays wants the row to stay while transactions go on, and to go once
// confirmed.
func (k kept) wantStays(typ string) {
	k.t.Helper()
	k.insert("marker", "1 hour")
	k.passes(3)
	if got := k.count("type = '" + typ + "'"); got != 1 {
		k.t.Fatal("a row went whose transaction ends beyond the confirmed position")
	}
	await.Until(k.t, "the row to go", func() bool { k.confirmAll(); return k.count("type = '"+typ+"'") == 0 })
}

const (
	insertLate = `INSERT INTO outbox (aggregatetype, aggregateid, type, created_at) VALUES ('a', '1', 'late', '2020-01-01')`
	copyFrozen = `COPY outbox (aggregatetype, aggregateid, type, created_at) FROM PROGRAM 'printf "a\t1\tlate\t2020-01-01\n"' WITH (FREEZE)`
)

// connect returns the same kept with another connection.
func (k kept) connect() kept {
	k.t.Helper()
	k.conn = connect(k.t, k.conn.Config().ConnString())
	return k
}
