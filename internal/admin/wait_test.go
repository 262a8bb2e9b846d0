package admin

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/poll"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

// short is the timeout of a wait in vain: time for a look on a busy machine.
const short = 3 * time.Second

// wantLate wants a wait in vain to end with the words.
func (f *fixture) wantLate(words ...string) *WaitReport {
	f.t.Helper()
	r, err := Wait(f.ctx(), f.Config, WaitOptions{Timeout: short})
	wantClass(f.t, err, failure.Transient, append(words, "not everything is in Kafka after")...)
	if r.Reached {
		f.t.Error("the report says that all is published")
	}
	return r
}

func (f *fixture) end() (lsn pg.LSN) {
	f.t.Helper()
	var text string
	must.OK(f.t, f.conn.QueryRow(f.ctx(), `SELECT pg_current_wal_insert_lsn()::text`).Scan(&text))
	return must.Get(pg.ParseLSN(text))(f.t)
}

// Failure mode 184. A wait whose time is over says how far the slot is, who reads
// it, and what is open.
func TestWaitSaysWhatIsBehind(t *testing.T) {
	f := sound(t)
	f.insert("order", "1", "{}")
	var notes []string
	r, err := Wait(f.ctx(), f.Config, WaitOptions{Timeout: short, Note: func(note string) { notes = append(notes, note) }})
	wantClass(t, err, failure.Transient, "nobody reads slot")
	if r.BehindBytes == 0 || r.LSN == "" || r.ConfirmedLSN == "" || len(notes) != 1 {
		t.Errorf("report %+v, notes %q", r, notes)
	}
	f.hold()
	open := f.beside()
	pgtest.Execute(t, open, `BEGIN`, `SELECT 1`)
	if r := f.wantLate("is read by process", "the longest open transaction: pid"); r.Holder == nil || r.Open == nil {
		t.Errorf("report %+v", r)
	}
}

// Failure mode 184. A reader confirms what was published, after the checkpoint is
// saved.
func TestWaitEndsWithTheConfirmation(t *testing.T) {
	f := sound(t)
	f.insert("order", "1", "{}")
	end := f.end()
	leave := f.confirming()
	r := must.Get(Wait(f.ctx(), f.Config, WaitOptions{LSN: end, Timeout: patience}))(t)
	must.Contain(t, text(t, r), "all that was committed before is in Kafka, up to "+r.LSN)
	leave()
}

// confirming reads the slot as a connector does, until the caller leaves: it saves the
// checkpoint at each position, and confirms it.
func (f *fixture) confirming() (leave func()) {
	f.t.Helper()
	stream := f.open()
	reading, stop := context.WithCancel(f.ctx())
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			msg, err := stream.Next(reading)
			if err != nil {
				return
			}
			if msg.End > 0 {
				f.saveAt(msg.End)
				stream.Confirm(msg.End)
			}
		}
	})
	return func() {
		f.t.Helper()
		stop()
		reader.Wait()
		f.leave(stream)
	}
}

// Failure mode 184. A slot that was moved by hand says nothing, which the
// checkpoint shows.
func TestWaitComparesTheCheckpoint(t *testing.T) {
	f := sound(t)
	f.save()
	lsn := f.end()
	f.insert("order", "1", "{}")
	f.exec(`SELECT pg_replication_slot_advance('` + f.Source.Slot + `', pg_current_wal_flush_lsn())`)
	_, err := Wait(f.ctx(), f.Config, WaitOptions{LSN: lsn, Timeout: patience})
	wantClass(t, err, failure.Loss, "advanced or recreated")
}

func TestWaitRefusesWhatItCannotKnow(t *testing.T) {
	f := empty(t)
	_, err := Wait(f.ctx(), f.Config, WaitOptions{Timeout: patience})
	wantClass(t, err, failure.Loss, "does not exist")
	f.setup()
	_, err = Wait(f.ctx(), f.Config, WaitOptions{LSN: f.end() + 1<<30, Timeout: patience})
	wantClass(t, err, failure.Config, "beyond the end of the log")
	f.Source.URL = setting.Secret("postgres://127.0.0.1:1/nowhere")
	f.wantLate("connection refused")
}

// A wait in poll mode is for the rows that are there, however they are marked.
func TestWaitForPolledRows(t *testing.T) {
	for _, after := range []string{poll.AfterPublishMark, poll.AfterPublishDelete} {
		t.Run(after, func(t *testing.T) {
			f := pollFixture(t)
			f.Source.Poll.AfterPublish = after
			f.setup()
			must.Get(Wait(f.ctx(), f.Config, WaitOptions{Timeout: patience}))(t)
			f.exec(`INSERT INTO outbox (aggregatetype, aggregateid, type, payload) SELECT 'order', n, 'Placed', '{}' FROM generate_series(1, 5) n`)
			if r := f.wantLate("5 rows of"); r.UnpublishedRows != 5 || r.Table == "" {
				t.Errorf("report %+v", r)
			}
			ended := make(chan error, 1)
			go func() {
				_, err := Wait(f.ctx(), f.Config, WaitOptions{Timeout: patience})
				ended <- err
			}()
			publish := map[string]string{
				poll.AfterPublishMark:   `UPDATE outbox SET published = true WHERE aggregateid = '%s'`,
				poll.AfterPublishDelete: `DELETE FROM outbox WHERE aggregateid = '%s'`,
			}[after]
			for _, key := range []string{"1", "2", "3", "4"} {
				f.exec(fmt.Sprintf(publish, key))
			}
			f.wantLate("1 rows of")
			select {
			case err := <-ended:
				t.Fatalf("the wait has ended with a row left: %v", err)
			default:
			}
			f.exec(fmt.Sprintf(publish, "5"))
			must.OK(t, <-ended)
			_, err := Wait(f.ctx(), f.Config, WaitOptions{LSN: 1, Timeout: patience})
			wantClass(t, err, failure.Config, "needs a replication slot")
		})
	}
}
