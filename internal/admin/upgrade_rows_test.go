package admin

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/checkpoint"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// formerServer is the system identifier in the checkpoints of an upgraded server.
const formerServer = "7000000000000000001"

// toUpgrade is a fixture with a topic. Events 1 and 2 were never for Kafka, as they are
// older than the connector, 3 to 5 are there.
func toUpgrade(t *testing.T) *published {
	p := &published{fixture: sound(t), broker: kafkatest.Start(t)}
	p.Sink = config.Sink{Kafka: sink.DefaultOptions()}
	p.Sink.Kafka.Brokers = p.broker.Brokers
	p.Sink.Kafka.CreateTopics = true
	p.write(1, 2, 3, 4, 5)
	p.send("outbox.event.order", 3, 4, 5)
	p.advance()
	p.save()
	return p
}

// advance confirms all that the slot has.
func (f *fixture) advance() {
	f.exec(`SELECT pg_replication_slot_advance('` + f.Source.Slot + `', pg_current_wal_flush_lsn())`)
}

// upgrade has the server be the one that pg_upgrade makes of the prepared one.
func (f *fixture) upgrade(change ...func(*checkpoint.Checkpoint)) {
	f.t.Helper()
	cp := f.stored()
	cp.SystemID, cp.Upgrade.Version = formerServer, 170011
	for _, c := range change {
		c(cp)
	}
	f.put(*cp)
}

// finish is upgrade finish, with a list of missing events.
func (p *published) finish(yes bool) (*FinishReport, error) {
	return FinishUpgrade(p.ctx(), p.Config, p.options(AuditOptions{}), yes)
}

// before17 has the server upgraded from a version whose slots pg_upgrade does not keep.
func (p *published) before17() {
	p.t.Helper()
	must.Get(p.prepare(true))(p.t)
	p.exec(dropSlot(p.fixture))
	p.upgrade(func(cp *checkpoint.Checkpoint) { cp.Upgrade.Version = 150019 })
}

// aCopy has the server be no result of pg_upgrade.
func aCopy(cp *checkpoint.Checkpoint) {
	m := &cp.Upgrade.Marker
	m.Committed, m.RolledBack = m.RolledBack, m.Committed
}

// wantTopic wants the events in the topic, in this order.
func (p *published) wantTopic(numbers ...int) {
	p.t.Helper()
	records := p.broker.Consume(p.t, []string{"outbox.event.order"}, kafkatest.Count(len(numbers)))
	var got, want []string
	for _, r := range records {
		id, _ := transform.Header(r.Headers, "id")
		got = append(got, string(id))
	}
	for _, n := range numbers {
		want = append(want, eventID(n))
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		p.t.Errorf("the topic has %v, want %v", got, want)
	}
}

// The rows of a pending snapshot are not published yet, and nothing in the log tells so.
func TestUpgradeIsNotPreparedBeforeASnapshotIsPublished(t *testing.T) {
	f := sound(t)
	cp := f.save()
	cp.Snapshot = true
	f.put(cp)
	f.insertElsewhere()
	for _, yes := range []bool{false, true} {
		_, err := f.prepare(yes)
		wantClass(t, err, failure.Transient, "the rows of the tables are still to be published")
	}
}

// Of an upgraded server only rows after the marker are in question: earlier rows are
// published, or were never to be.
func TestUpgradeFinishPublishesRowsAfterTheMarkerOnly(t *testing.T) {
	for _, delivery := range []string{sink.DeliveryAtLeastOnce, sink.DeliveryExactlyOnce} {
		t.Run(delivery, func(t *testing.T) {
			p := toUpgrade(t)
			p.Sink.Kafka.Delivery = delivery
			p.before17()
			p.write(6, 9, 12) // of one key
			plan, err := p.finish(false)
			wantClass(t, err, failure.Config, "nothing was changed")
			must.Contain(t, text(t, plan), "3 missing", "with --yes", eventID(6))
			if _, ok := p.slot(); ok {
				t.Error("a plan has made a slot")
			}
			done := must.Get(p.finish(true))(t)
			if done.Repair.Rows != 3 || done.Repair.Published != 3 {
				t.Errorf("%+v, want the 3 rows after the marker", done.Repair)
			}
			p.wantTopic(3, 4, 5, 6, 9, 12)
		})
	}
}

// A writer left open at the marker commits later, with an earlier transaction.
func TestUpgradeFinishPublishesRowsOfATransactionOpenAtTheMarker(t *testing.T) {
	p := toUpgrade(t)
	writer := p.beside()
	must.Get(writer.Exec(p.ctx(), `BEGIN`))(t)
	must.Get(writer.Exec(p.ctx(), `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES ('`+eventID(6)+`', 'order', 'k0', 'Placed', '{}')`))(t)
	p.insertElsewhere()
	must.Get(p.prepare(true))(t)
	must.Get(writer.Exec(p.ctx(), `COMMIT`))(t)
	p.exec(dropSlot(p.fixture))
	p.upgrade(func(cp *checkpoint.Checkpoint) { cp.Upgrade.Version = 150019 })
	must.Get(p.finish(true))(t)
	p.wantTopic(3, 4, 5, 6)
}

// Unknown rows may be missing: they are not passed over.
func TestUpgradeFinishNamesRowsThatAreNotKnown(t *testing.T) {
	p := toUpgrade(t)
	p.before17()
	p.write(6)
	p.broker.CreateTopic(t, "outbox.event.compacted", 1, map[string]string{"cleanup.policy": "compact"})
	p.exec(`UPDATE outbox SET aggregatetype = 'compacted' WHERE id = '` + eventID(6) + `'`)
	_, err := p.finish(true)
	wantClass(t, err, failure.Loss, "1 rows", "may be missing")
	if cp := p.stored(); cp.SystemID != formerServer {
		t.Errorf("%+v", cp)
	}
}

// A server with other rows is no copy of the prepared one: source.url is wrong.
func TestUpgradeFinishRefusesAServerWithoutAPublishedRow(t *testing.T) {
	p := toUpgrade(t)
	must.Get(p.prepare(true))(t)
	p.upgrade(aCopy)
	p.exec(`DELETE FROM outbox`)
	p.write(20, 21)
	slot := must.Get(readSlot(p.fixture))(t)
	for _, yes := range []bool{false, true} {
		_, err := p.finish(yes)
		wantClass(t, err, failure.Config, "none of the 2 rows")
	}
	if now := must.Get(readSlot(p.fixture))(t); now.ConfirmedFlush != slot.ConfirmedFlush {
		t.Errorf("the slot was made anew: %+v", now)
	}
	p.wantTopic(3, 4, 5)
}

// A slot was perhaps not kept, but made by hand: rows from before the slot are compared.
func TestUpgradeFinishComparesRowsBeforeASlotMadeByHand(t *testing.T) {
	p := toUpgrade(t)
	must.Get(p.prepare(true))(t)
	p.write(6)
	p.exec(dropSlot(p.fixture))
	p.upgrade()
	p.exec(`SELECT pg_create_logical_replication_slot('` + p.Source.Slot + `', 'pgoutput')`)
	slot := must.Get(readSlot(p.fixture))(t)
	p.write(7) // in the slot
	done := must.Get(p.finish(true))(t)
	if done.Slot != slotKept || done.From != slot.ConfirmedFlush.String() || done.Repair == nil || done.Repair.Published != 1 {
		t.Errorf("%+v", done)
	}
	p.wantTopic(3, 4, 5, 6)
}

// Two operators: one waits for the other, and is refused.
func TestUpgradeIsFinishedByOneOperator(t *testing.T) {
	p := toUpgrade(t)
	p.before17()
	held := must.Get(catalog.Connect(p.ctx(), p.Source.URL.Reveal()))(t)
	defer catalog.Close(held)
	for _, verb := range []string{"upgrade finish", "upgrade prepare"} {
		if alone := must.Get(catalog.LockVerb(p.ctx(), held, verb, p.Source.Slot))(t); !alone {
			t.Fatal("the lock is not free")
		}
	}
	before := p.stored()
	_, err := p.finish(true)
	wantClass(t, err, failure.Config, "another upgrade finish")
	_, err = p.prepare(true)
	wantClass(t, err, failure.Config, "another upgrade prepare")
	if now := p.stored(); now.Epoch != before.Epoch {
		t.Errorf("%+v", now)
	}
}

// A finish that ended behind the slot's creation begins again: that slot was not kept by
// the upgrade.
func TestUpgradeFinishGoesOnAfterAnInterruption(t *testing.T) {
	p := toUpgrade(t)
	must.Get(p.prepare(true))(t)
	p.write(6)
	p.exec(dropSlot(p.fixture))
	p.upgrade()
	p.exec(`SELECT pg_advisory_lock(hashtext('cdc-outbox repair'), hashtext('` + p.Source.Slot + `'))`)
	_, err := p.finish(true)
	wantClass(t, err, failure.Config, "another repair")
	p.wantSlot()
	if cp := p.stored(); cp.SystemID != formerServer || !cp.Upgrade.Creating {
		t.Errorf("%+v", cp)
	}
	p.exec(`SELECT pg_advisory_unlock_all()`)
	if done := must.Get(p.finish(true))(t); done.Slot != slotRecreated || done.Repair.Published != 1 {
		t.Errorf("%+v", done)
	}
	p.wantTopic(3, 4, 5, 6)
}

// With exactly_once a connector left for dead cannot commit behind the comparison.
func TestUpgradeFinishFencesTheFormerConnector(t *testing.T) {
	p := toUpgrade(t)
	p.Sink.Kafka.Delivery = sink.DeliveryExactlyOnce
	former := must.Get(claimed(p.ctx(), p.Config, ""))(t)
	defer former.Close()
	p.before17()
	p.write(6)
	must.Get(p.finish(true))(t)
	late := &transform.Event{Record: kgo.Record{Topic: "outbox.event.order", Value: []byte("late")}}
	if refused, err := former.Transact(p.ctx(), []sink.Entry{{Event: late}}, nil); err == nil {
		t.Errorf("a former connector has committed; refused %v", refused)
	}
	p.wantTopic(3, 4, 5, 6)
}

// The sources must stay until the upgrade is finished: nothing compares them later.
func TestUpgradeFinishWantsTheSameSources(t *testing.T) {
	p := toUpgrade(t)
	p.before17()
	p.upgrade(func(cp *checkpoint.Checkpoint) { cp.Scope = "public.other,public.outbox" })
	_, err := p.finish(true)
	wantClass(t, err, failure.Config, "public.other,public.outbox")
	p.Source.Tables = append(p.Source.Tables, pg.Table{Schema: "public", Name: "other"})
	p.exec(`CREATE TABLE other (LIKE outbox INCLUDING ALL)`, `ALTER PUBLICATION `+p.Source.Publication+` ADD TABLE other`)
	must.Get(p.finish(true))(t)
}

// With events on stdout nothing can be compared, and rows after the marker would be lost.
func TestUpgradeFinishWithoutKafka(t *testing.T) {
	f := sound(t)
	f.save()
	must.Get(f.prepare(true))(t)
	f.exec(dropSlot(f))
	f.upgrade()
	plan, _ := f.finish(false)
	must.Contain(t, text(t, plan), "nothing is compared")
	f.insert("order", "1", "{}")
	_, err := f.finish(true)
	wantClass(t, err, failure.Loss, "1 rows")
	f.exec(`DELETE FROM outbox`)
	done := must.Get(f.finish(true))(t)
	must.Contain(t, text(t, done), "nothing is compared")
}

// A bad event is parked, and so is the next event of its key.
func TestUpgradeFinishKeepsTheQuarantinesOrder(t *testing.T) {
	p := toUpgrade(t)
	p.Errors.OnBadEvent = transform.BadEventQuarantine
	p.before17()
	p.write(6, 7, 10, 8)
	p.exec(`UPDATE outbox SET payload = to_jsonb(repeat('x', 2000000)) WHERE id = '` + eventID(7) + `'`)
	done := must.Get(p.finish(true))(t)
	if done.Repair.Published != 2 || done.Repair.Parked != 2 {
		t.Errorf("%+v", done.Repair)
	}
	must.Contain(t, text(t, done), "published 2, dead-lettered 0, skipped 0, parked 2")
	p.wantTopic(3, 4, 5, 6, 8)
	list := must.Get(ListQuarantine(p.ctx(), p.Config, QuarantineOptions{Timeout: patience, Limit: 10}))(t)
	if list.Events != 2 || list.Keys != 1 || list.Listed[0].ID != eventID(7) {
		t.Errorf("%+v", list)
	}
}
