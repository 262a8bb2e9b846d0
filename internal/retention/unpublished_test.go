package retention_test

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/retention"
	"github.com/cdc-outbox/cdc-outbox/outbox"
)

// TestLateCommitStays keeps a transaction open from before to after a
// confirmation: its row is old when it becomes visible, and is not published.
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

// TestRewrittenRowStays writes, after the confirmed position, rows whose header
// does not show it in the usual way.
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

// wantStays wants the row to stay while transactions go on, and to go once it
// is confirmed.
func (k kept) wantStays(typ string) {
	k.t.Helper()
	k.insert("marker", "1 hour")
	k.passes(3)
	if got := k.count("type = '" + typ + "'"); got != 1 {
		k.t.Fatal("a row went whose transaction ends beyond the confirmed position")
	}
	k.await("the row to go", func() bool { k.confirmAll(); return k.count("type = '"+typ+"'") == 0 })
}

const (
	insertLate = `INSERT INTO outbox (aggregatetype, aggregateid, type, created_at) VALUES ('a', '1', 'late', '2020-01-01')`
	copyFrozen = `COPY outbox (aggregatetype, aggregateid, type, created_at) FROM PROGRAM 'printf "a\t1\tlate\t2020-01-01\n"' WITH (FREEZE)`
)

// connect returns the same with another connection.
func (k kept) connect() kept {
	k.t.Helper()
	k.conn = connect(k.t, k.conn.Config().ConnString())
	return k
}
