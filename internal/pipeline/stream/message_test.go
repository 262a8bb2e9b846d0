package stream

import (
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/base/envelope"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// messageDatabase is a database without an outbox, in message mode.
func messageDatabase(t *testing.T) *database {
	t.Helper()
	d := sharedDatabase(t)
	d.exec("DROP TABLE outbox")
	d.opts.Messages, d.opts.Tables = true, nil
	return d
}

// composedDatabase is a database with an outbox, in message mode.
func composedDatabase(t *testing.T) *database {
	t.Helper()
	d := sharedDatabase(t)
	d.opts.Messages = true
	return d
}

// emit is the SQL for an event as a message.
func emit(t *testing.T, id string, payload string) string {
	t.Helper()
	content := must.Get(envelope.Encode(&envelope.Message{
		ID: []byte(id), AggregateType: []byte("order"), AggregateID: []byte("o-1"), Type: []byte("Placed"), Payload: []byte(payload),
	}))(t)
	return "SELECT pg_logical_emit_message(true, 'outbox', decode('" + hex.EncodeToString(content) + "', 'hex'))"
}

func insertSQL(id string) string {
	return "INSERT INTO outbox VALUES ('" + id + "', 'order', 'o-1', 'Placed', '{}')"
}

// Without a table there are only messages: of our prefix, of committed transactions, and
// not rolled back to a savepoint.
func TestMessagesAlone(t *testing.T) {
	d := messageDatabase(t)
	i := d.run().streams()
	d.exec("CREATE TABLE other (id int)")
	d.exec(strings.Join([]string{"BEGIN", emit(t, "1", "{}"), "INSERT INTO other VALUES (1)",
		"SAVEPOINT a", emit(t, "gone", "{}"), "ROLLBACK TO a", emit(t, "2", "{}"),
		"SELECT pg_logical_emit_message(true, 'another', 'x')", "COMMIT"}, ";"))
	d.exec(strings.Join([]string{"BEGIN", emit(t, "gone", "{}"), "ROLLBACK"}, ";"))
	d.exec(emit(t, "3", "{}"))
	arrive(t, d.topic, 3)
	i.stop()
	d.exec(emit(t, "4", "{}")) // while nobody reads
	i = d.run().streams()
	arrive(t, d.topic, 4)
	i.stop()
	wantOnce(t, d.topic, []string{"1", "2", "3", "4"})
	if last := d.topic.all()[3].position.CommitLSN; d.confirmed() <= last {
		t.Errorf("confirmed %s, the last event is at %s", d.confirmed(), last)
	}
	if n := d.text("SELECT count(*)::text FROM pg_publication_tables"); n != "0" {
		t.Errorf("%s tables are published", n)
	}
}

// The order within a transaction is the statements', by either way of an event, and the
// position counts both.
func TestMessagesBesideATable(t *testing.T) {
	d := composedDatabase(t)
	i := d.run().streams()
	var ids []string
	for range 10 {
		sql := []string{"BEGIN"}
		for k := range 6 {
			d.next++
			ids = append(ids, strconv.Itoa(d.next))
			statement := insertSQL(ids[len(ids)-1])
			if (k+d.next/6)%2 == 0 {
				statement = emit(t, ids[len(ids)-1], "{}")
			}
			sql = append(sql, statement)
		}
		d.exec(strings.Join(append(sql, "COMMIT"), ";"))
	}
	arrive(t, d.topic, len(ids))
	i.stop()
	wantOnce(t, d.topic, ids)
	for n, r := range d.topic.all() {
		if want := uint32(n % 6); r.position.Seq != want {
			t.Errorf("event %s is number %d of its transaction, want %d", r.id, r.position.Seq, want)
		}
	}
}

// Failure mode 44: a message without an event is dealt with as errors.on_bad_event says,
// and nothing around is lost. The non-transactional message stands in the log right
// before the commit of a row, and the two positions must not be confused.
func TestBadMessages(t *testing.T) {
	t.Parallel()
	bad := []string{
		"SELECT pg_logical_emit_message(true, 'outbox', 'no envelope')",
		"SELECT pg_logical_emit_message(true, 'outbox', '')",
		"BEGIN; " + insertSQL("2") + "; SELECT pg_logical_emit_message(false, 'outbox', '" + "no transaction" + "'); COMMIT",
		"BEGIN; " + strings.Replace(emit(t, "loose", "{}"), "true", "false", 1) + "; ROLLBACK",
	}
	reasons := []transform.Reason{transform.ReasonUnreadableContents, transform.ReasonUnreadableContents,
		transform.ReasonUnreadableContents, transform.ReasonNotTransactional}

	t.Run("skip", func(t *testing.T) {
		d := composedDatabase(t)
		d.opts.OnBadEvent = transform.BadEventSkip
		i := d.run().streams()
		d.exec(emit(t, "1", "{}"))
		for _, sql := range bad {
			d.exec(sql)
		}
		d.exec(emit(t, "3", "{}"))
		arrive(t, d.topic, 3)
		i.stop()
		wantOnce(t, d.topic, []string{"1", "2", "3"})
		if got := i.metrics.skipped; !slices.Equal(got, reasons) {
			t.Errorf("skipped %v, want %v", got, reasons)
		}
		if lag := i.health.delivery.lag(); lag != 0 { // other tests' log does not count
			t.Errorf("what was skipped lags %s behind", lag)
		}
	})
	t.Run("stop", func(t *testing.T) {
		d := messageDatabase(t)
		i := d.run().streams()
		d.exec(bad[0])
		i.wantEnd(failure.Config, "bad event .* of message outbox at .*: unreadable: decode envelope")
		d.run().wantEnd(failure.Config, "unreadable") // not forgotten
		d.opts.OnBadEvent = transform.BadEventDeadLetter
		i = d.run().streams()
		d.exec(emit(t, "1", "{}"))
		arrive(t, d.topic, 1)
		i.stop()
		if !slices.Equal(d.gate.dead, []string{""}) {
			t.Errorf("dead letters %q", d.gate.dead)
		}
	})
}

// Failure mode 54: no commit follows a message of no transaction, and an outbox may be
// quiet for long. The position goes on, over the message and later log of other tables.
func TestAMessageOfNoTransactionHoldsNothingBack(t *testing.T) {
	for _, policy := range []string{transform.BadEventSkip, transform.BadEventDeadLetter} {
		t.Run(policy, func(t *testing.T) {
			d := messageDatabase(t)
			d.opts.OnBadEvent = policy
			i := d.run().streams()
			d.exec(emit(t, "1", "{}"))
			d.exec("CREATE TABLE other (v text)")
			d.exec(strings.Replace(emit(t, "loose", "{}"), "true", "false", 1))
			d.exec("INSERT INTO other SELECT repeat('x', 1000) FROM generate_series(1, 1000)") // more than saveBytes
			end := d.lsn("SELECT pg_current_wal_lsn()::text")
			eventually(t, "the position behind the message", func() bool { return d.confirmed() >= end })
			i.stop()

			d.exec(emit(t, "2", "{}"))
			i = d.run().streams()
			arrive(t, d.topic, 2)
			i.stop()
			wantOnce(t, d.topic, []string{"1", "2"})
			if policy == transform.BadEventDeadLetter && !slices.Equal(d.gate.dead, []string{"loose"}) {
				t.Errorf("dead letters %q, want the message once", d.gate.dead)
			}
		})
	}
}

// Failure modes 20 and 17.
func TestPreparedAndLargeMessages(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Setting("max_prepared_transactions", "4"))
	d := newDatabase(t, server.NewDatabase(t))
	d.opts.Messages, d.opts.Tables = true, nil
	i := d.run().streams()
	for _, id := range []string{"kept", "dropped"} {
		d.exec("BEGIN;" + emit(t, id, "{}") + "; PREPARE TRANSACTION '" + id + "'")
	}
	large := `"` + strings.Repeat("0123456789abcdef", 5<<16) + `"` // 5 MiB
	d.exec(emit(t, "large", large))
	arrive(t, d.topic, 1)
	d.exec("COMMIT PREPARED 'kept'")
	d.exec("ROLLBACK PREPARED 'dropped'")
	arrive(t, d.topic, 2)
	i.stop()
	wantOnce(t, d.topic, []string{"large", "kept"})
	if got := d.topic.all()[0].value; got != large {
		t.Errorf("the large payload arrived changed, as %d bytes", len(got))
	}
}

// Messages do not pass through the publication, so no message is lost if it is dropped:
// with another publication, they go on. The missing publication is still reported,
// because a change of a table would end the stream.
func TestMessagesWhenThePublicationIsDropped(t *testing.T) {
	d := messageDatabase(t)
	i := d.run().streams()
	d.exec(emit(t, "1", "{}"))
	arrive(t, d.topic, 1)
	d.exec("DROP PUBLICATION cdc_outbox")
	d.exec(emit(t, "2", "{}"))
	i.wantEnd(failure.Config, `publication "cdc_outbox" does not exist`)
	d.run().wantEnd(failure.Config, `publication "cdc_outbox" does not exist`)
	d.exec("CREATE PUBLICATION cdc_outbox")
	i = d.run().streams()
	d.exec(emit(t, "3", "{}"))
	arrive(t, d.topic, 3)
	i.stop()
	wantAll(t, d.topic, []string{"1", "2", "3"})
}

// Up to PostgreSQL 17, however, a change of a table meanwhile ends the decoding.
func TestMessagesWhenATableChangesWithoutThePublication(t *testing.T) {
	d := messageDatabase(t)
	d.exec("CREATE TABLE other (id int)")
	d.run().streams().stop()
	d.exec("DROP PUBLICATION cdc_outbox")
	d.exec("BEGIN; INSERT INTO other VALUES (1);" + emit(t, "1", "{}") + "; COMMIT")
	d.exec("CREATE PUBLICATION cdc_outbox")
	i := d.run()
	if d.text("SELECT (current_setting('server_version_num')::int >= 180000)::text") != "true" {
		i.wantEnd(failure.Loss, `publication "cdc_outbox" does not exist`)
		return
	}
	arrive(t, d.topic, 1)
	i.stop()
	wantOnce(t, d.topic, []string{"1"})
}

func TestOptionsThatMessagesCannotMeet(t *testing.T) {
	d := messageDatabase(t)
	d.event.Timestamp = "created_at"
	d.run().wantEnd(failure.Config, `event.timestamp: messages have no field "created_at"`)
}

// A mistyped prefix would pass over all messages without a word.
func TestAnotherPrefixIsAMistake(t *testing.T) {
	for name, mistake := range map[string]func(*database){
		"prefix": func(d *database) { d.opts.Prefix = "outbx" },
		"mode":   func(d *database) { d.opts.Messages, d.opts.Tables = false, defaultOptions().Tables },
	} {
		t.Run(name, func(t *testing.T) {
			d := outbox(t)
			d.exec("CREATE PUBLICATION cdc_outbox FOR TABLE outbox")
			d.opts.Messages, d.opts.Tables = true, nil
			right := d.opts
			d.run().streams().stop()
			mistake(d)
			d.run().wantEnd(failure.Config, `messages with the prefix "outbox" were read`)
			d.opts = right
			d.run().streams().stop()
		})
	}
}
