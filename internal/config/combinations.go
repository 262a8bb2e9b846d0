package config

import (
	"slices"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/claimcheck"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/registry"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// chooseTables drops the default table in message mode: messages need none.
func (l *loader) chooseTables() {
	if _, set := l.given["source.tables"]; !set && l.cfg.Source.Mode == ModeMessage {
		l.cfg.Source.Tables = nil
	}
}

// choosePolling turns off the options of a slot: there is no position to keep,
// nor one to put into headers.
func (l *loader) choosePolling() {
	if l.cfg.Source.Mode != ModePoll {
		return
	}
	if _, set := l.given["event.position_headers"]; !set {
		l.cfg.Event.PositionHeaders = false
	}
	if _, set := l.given["checkpoint.store"]; !set {
		l.cfg.Checkpoint.Store = store.StoreNone
	}
}

// chooseCompat has what Debezium does for options that are not set.
func (l *loader) chooseCompat() {
	ev := &l.cfg.Event
	if ev.Compat != transform.CompatDebezium {
		return
	}
	l.cfg.Route.Underscores = true
	for _, option := range []struct {
		key    string
		choose func()
	}{
		{"event.type_header", func() { ev.TypeHeader = "" }},
		{"event.position_headers", func() { ev.PositionHeaders = false }},
		{"event.headers", func() { ev.Headers = transform.HeadersNone }},
		{"event.tracing", func() { ev.Tracing = transform.HeadersNone }},
		{"event.null_key", func() { ev.NullKey = transform.NullKeyPublish }},
		{"event.invalid_json", func() { ev.InvalidJSON = transform.InvalidJSONPublish }},
	} {
		if _, set := l.given[option.key]; !set {
			option.choose()
		}
	}
}

// chooseEncoded tells CloudEvents the content type of values by a registry's schema.
func (l *loader) chooseEncoded() {
	switch format := l.cfg.Encoding.Value.Format; format {
	case registry.FormatNone:
	case registry.FormatEncoded, registry.FormatJSONSchema: // JSON behind the number of its schema is none
		l.cfg.Event.CloudEvents.Encoded = "application/octet-stream"
	default:
		l.cfg.Event.CloudEvents.Encoded = "application/" + format
	}
}

// chooseSpans gives the events spans where they are exported. Only records of Kafka are
// told of.
func (l *loader) chooseSpans() {
	if t := &l.cfg.Tracing; t.On() && l.cfg.Sink.Kafka != nil {
		l.cfg.Event.Spans = transform.Spans{On: true, Ratio: t.Ratio()}
	}
}

// validateCombinations judges options across sections.
func (l *loader) validateCombinations() {
	if l.cfg.Source.Mode == ModePoll {
		l.validatePolling()
	} else {
		l.validateSnapshot()
	}
	l.validateCheckpoint()
	l.validateLetters()
	l.validateQuarantine()
	l.validateDelivery()
	l.validateEncoding()
	l.validateClaimCheck()
	l.validateRetention()
	l.validateRepair()
}

// validateRepair names everything that a repair could not do without.
func (l *loader) validateRepair() {
	const key, stop = "errors.on_loss", "set it to stop"
	if l.cfg.Errors.OnLoss != LossRepair {
		return
	}
	switch l.cfg.Source.Mode {
	case ModePoll:
		l.report(key, "has no effect with source.mode: poll: there is no slot to be lost", "remove it")
		return
	case ModeMessage:
		l.report(key, "repair cannot know with source.mode: message which messages are missing: they are in the log only", stop)
		return
	}
	if l.cfg.Sink.Kafka == nil {
		l.report(key, "repair compares the tables with Kafka, and the sink is stdout", stop+", or set sink.kafka")
	}
	if l.cfg.Errors.OnBadEvent == transform.BadEventQuarantine {
		l.report(key, "repair publishes missing events beside the parked ones of their key (errors.on_bad_event: quarantine)", stop+", or errors.on_bad_event to another value")
	}
	if l.cfg.Checkpoint.Store == store.StoreNone {
		l.report("checkpoint.store", "none remembers no loss that is still to be repaired (errors.on_loss: repair)", "set it to kafka, postgres or file, or errors.on_loss to stop")
	}
	if !l.cfg.Source.Create {
		l.report("source.create", "must be true for errors.on_loss: repair, which makes the slot anew", "set it to true, or errors.on_loss to stop")
	}
}

// Repairable reports whether errors.on_loss could be LossRepair with all other values.
func (c *Config) Repairable() bool {
	probe := *c
	probe.Errors.OnLoss = LossRepair
	l := &loader{cfg: &probe, given: map[string]given{}}
	l.validateRepair()
	return len(l.problems.List) == 0
}

func (l *loader) validatePolling() {
	if l.cfg.Event.PositionHeaders {
		l.report("event.position_headers", "needs a position in the log, which source.mode: poll does not know", "remove it, or set it to false")
	}
	if l.cfg.Checkpoint.Store != store.StoreNone {
		l.report("checkpoint.store", "has no effect with source.mode: poll: the table is the state", "remove it, or set it to none")
	}
	if l.cfg.Source.Snapshot == SnapshotInitial {
		l.report("source.snapshot", "has no effect with source.mode: poll, which publishes every row that is not marked as published", "remove it")
	}
}

func (l *loader) validateSnapshot() {
	s := &l.cfg.Source
	if s.Snapshot != SnapshotInitial {
		return
	}
	if s.Mode == ModeMessage && len(s.Tables) == 0 {
		l.report("source.snapshot", "has nothing to read: messages are in no table",
			"set source.snapshot to never; or name the tables to read beside the messages in source.tables")
	}
	if l.cfg.Checkpoint.Store == store.StoreNone {
		l.report("source.snapshot", "needs a checkpoint, or every start would publish the whole table again", "set checkpoint.store to kafka, postgres or file; `cdc-outbox tail --from-table` shows what would be published")
	}
}

func (l *loader) validateCheckpoint() {
	if l.cfg.Checkpoint.Store != store.StoreKafka {
		return
	}
	if l.cfg.Sink.Kafka == nil {
		l.report("checkpoint.store", "needs sink.kafka, but the sink is another one", "set checkpoint.store to postgres, file or none")
	}
	if l.cfg.Checkpoint.Topic == l.cfg.Errors.DeadLetterTopic && l.cfg.Errors.OnBadEvent == transform.BadEventDeadLetter {
		l.report("checkpoint.topic", "is errors.dead_letter_topic too; compaction would remove dead letters", "name two topics")
	}
}

// validateLetters refuses dead letters among checkpoints, also those of other
// connectors.
func (l *loader) validateLetters() {
	topic := l.cfg.Errors.DeadLetterTopic
	if l.cfg.Errors.OnBadEvent != transform.BadEventDeadLetter || l.cfg.Checkpoint.Store == store.StoreKafka && topic == l.cfg.Checkpoint.Topic {
		return // or already reported
	}
	for _, kept := range l.cfg.Route.Internal {
		if topic == kept || strings.HasPrefix(topic, kept+".") {
			l.report("errors.dead_letter_topic", "is a topic of checkpoints; compaction would remove dead letters", "name another topic")
		}
	}
}

// validateQuarantine refuses parked events without a place or an order.
func (l *loader) validateQuarantine() {
	e := &l.cfg.Errors
	if e.OnBadEvent != transform.BadEventQuarantine {
		return
	}
	const elsewhere = "set errors.on_bad_event to stop, dead_letter or skip"
	switch {
	case l.cfg.Sink.Kafka == nil:
		l.report("errors.on_bad_event", "needs sink.kafka: events are parked in a topic", "set errors.on_bad_event to stop or skip")
	case l.cfg.Source.Mode == ModePoll:
		l.report("errors.on_bad_event", "has no order to keep with source.mode: poll, as several workers may publish the rows of a key", elsewhere)
	case l.cfg.Checkpoint.Store == store.StoreKafka && e.QuarantineTopic == l.cfg.Checkpoint.Topic:
		l.report("errors.quarantine_topic", "is checkpoint.topic too", "name two topics")
	}
	if l.cfg.Source.Snapshot == SnapshotInitial && l.cfg.Sink.Kafka != nil {
		l.report("source.snapshot", "cannot be initial with errors.on_bad_event: quarantine: a crash meanwhile would publish rows from before a parked one behind it",
			"publish the snapshot with on_bad_event stop, dead_letter or skip; then set source.snapshot to never, and quarantine")
	}
}

// validateDelivery refuses options unfit for exactly-once delivery. The
// checkpoint has to be in the transaction of its events, and a crash must leave
// nothing known only to the table.
func (l *loader) validateDelivery() {
	if l.cfg.Sink.Kafka == nil || l.cfg.Sink.Kafka.Delivery != sink.DeliveryExactlyOnce {
		return
	}
	switch {
	case l.cfg.Source.Mode == ModePoll:
		l.report("sink.kafka.delivery", "cannot be exactly_once with source.mode: poll: what is published is marked in the table, outside of the Kafka transaction",
			"set it to at_least_once; consumers recognise a repeated event by its header id")
		return
	case l.cfg.Checkpoint.Store != store.StoreKafka:
		l.report("checkpoint.store", "must be kafka with sink.kafka.delivery: exactly_once: the checkpoint is in the transaction of its events",
			"set it to kafka")
	}
}

// validateEncoding refuses formats that the sink does not write, or that lack what they need.
func (l *loader) validateEncoding() {
	e := &l.cfg.Encoding
	for _, form := range []struct {
		key string
		of  *registry.Form
	}{{"encoding.value.format", &e.Value}, {"encoding.key.format", &e.Key}} {
		if form.of.Format != registry.FormatNone && l.cfg.Sink.Kafka == nil {
			l.report(form.key, "needs sink.kafka: standard output takes text", "remove it, or set sink.kafka")
		}
	}
	if e.Value.Format == registry.FormatEncoded && l.cfg.Event.PayloadFormat != transform.FormatRaw {
		l.report("event.payload_format", "must be raw with encoding.value.format: encoded, or the bytes would be text", "set it to raw")
	}
	if e.Key.Format != registry.FormatNone && l.cfg.Event.KeyFormat != transform.KeyRaw {
		l.report("event.key_format", "must be raw with encoding.key.format, which writes the key's text by a schema", "set it to raw")
	}
	if e.Value.Format != registry.FormatNone && l.cfg.Event.CloudEvents.Mode == transform.CloudEventsStructured {
		l.report("encoding.value.format", "encodes the payload, which event.cloudevents.mode: structured has within JSON", "set event.cloudevents.mode to binary, or remove encoding.value")
	}
	if key := e.NeedsType(); key != "" && l.cfg.Event.TypeHeader == "" {
		l.report(key, "needs the header with the event's type, and event.type_header is empty", "set event.type_header to eventType, or write a name without ${type} in "+strings.Replace(key, ".subject", ".record", 1))
	}
}

// validateClaimCheck refuses values without records, and a table that is read itself.
func (l *loader) validateClaimCheck() {
	c := &l.cfg.ClaimCheck
	if !c.On() {
		return
	}
	const off = "set claim_check.store to none"
	kafka := l.cfg.Sink.Kafka
	if kafka == nil {
		l.report("claim_check.store", "needs sink.kafka: standard output takes values of any size", off)
	} else if c.Above >= int64(kafka.MaxRecordBytes) {
		l.report("claim_check.above", "is not less than sink.kafka.max_record_bytes, so that values between the two are refused", "lower it; 512KiB is the default")
	}
	if c.Store != claimcheck.StoreTable {
		return
	}
	if c.Table.URL != "" {
		const key, auth = "claim_check.table.url", "claim_check.table.auth"
		if err := checkURL(c.Table.URL); err != nil {
			l.reportError(key, err)
		} else {
			c.Table.URL = l.withLogin(key, auth, c.Table.URL, catalog.Login{Auth: c.Table.Auth, URL: l.given[key].written})
		}
	}
	if name, err := pg.ParseTable(c.Table.Name); err == nil && slices.Contains(l.cfg.Source.Tables, name) {
		l.report("claim_check.table.name", "is among source.tables: each value kept would be an event itself", "name another table")
	}
}

func (l *loader) validateRetention() {
	if l.cfg.Retention.After == 0 {
		return
	}
	switch {
	case l.cfg.Source.Mode == ModePoll:
		l.report("retention.after", "is for tables that are read from the log", "set source.poll.after_publish to delete")
	case l.cfg.Checkpoint.Store == store.StoreNone:
		l.report("retention.after", "needs a checkpoint: without one nobody notices that the slot was recreated, and rows that were not published would be deleted", "set checkpoint.store")
	case len(l.cfg.Source.Tables) == 0:
		l.report("retention.after", "has no table to keep: messages leave nothing behind", "remove it")
	}
}

// internalTopics are the topics of the connectors' checkpoints and parked events, and the
// default topics: others may use the same brokers.
func internalTopics(connectors []*Config) []string {
	topics := []string{store.DefaultOptions().Topic, quarantineTopic}
	for _, c := range connectors {
		if c.Checkpoint.Store == store.StoreKafka && !slices.Contains(topics, c.Checkpoint.Topic) {
			topics = append(topics, c.Checkpoint.Topic)
		}
		if parked := c.Errors.QuarantineTopic; c.Errors.OnBadEvent == transform.BadEventQuarantine && !slices.Contains(topics, parked) {
			topics = append(topics, parked)
		}
	}
	return topics
}

// validateRouting compiles the routing of a configuration without other faults.
func (l *loader) validateRouting() {
	if len(l.problems.List) > 0 {
		return
	}
	router, err := transform.New(l.cfg.Event, l.cfg.Route)
	if err == nil && l.cfg.Source.Mode == ModeMessage {
		err = router.BindMessages(len(l.cfg.Source.Tables) == 0)
	}
	for _, err := range failure.Split(err) {
		l.add(Problem{Key: l.name(""), Text: err.Error(), Remedy: failure.RemedyOf(err)})
	}
}
