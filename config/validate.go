package config

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/nearest"
)

// validate judges the values and their combinations.
func (l *loader) validate() {
	l.validateConnector()
	l.validateObservability()
}

// validateConnector judges what each pipeline has of its own.
func (l *loader) validateConnector() {
	l.validateSource()
	l.validateEvent()
	l.validateSink()
	l.validateCheckpoint()
	l.validateErrors()
	l.validateRetention()
}

func (l *loader) validateEvent() {
	e := &l.cfg.Event
	l.wantOneOf("event.additional_missing", e.AdditionalMissing, MissingError, MissingIgnore)
	l.wantOneOf("event.payload_format", e.PayloadFormat, FormatRaw, FormatJSON, FormatJSONExpanded)
	l.wantOneOf("event.null_behavior", e.NullBehavior, NullIgnore, NullOptionalBytes)
	l.wantOneOf("event.empty_array_behavior", e.EmptyArrayBehavior, EmptyArrayIgnore, EmptyArrayOptionalString)
	l.wantOneOf("event.null_key", e.NullKey, NullKeyBadEvent, NullKeyPublish)
	l.wantOneOf("event.invalid_json", e.InvalidJSON, InvalidJSONBadEvent, InvalidJSONPublish)
	l.wantOneOf("event.on_update", e.OnUpdate, UpdateWarn, UpdateError, UpdateFatal)
	if l.cfg.Route.Regex == "" {
		l.report("route.regex", "is empty", "remove the key for the default, which matches every value")
	}
	if l.cfg.Route.Topic == "" {
		l.report("route.topic", "is empty", "remove the key for the default, outbox.event.${routedByValue}")
	}
}

func (l *loader) validateCheckpoint() {
	c := &l.cfg.Checkpoint
	l.wantOneOf("checkpoint.store", c.Store, StoreKafka, StorePostgres, StoreFile, StoreNone)
	l.wantBetween("checkpoint.interval", c.Interval, time.Millisecond, time.Minute)
	switch c.Store {
	case StoreKafka:
		if l.cfg.Sink.Kafka == nil {
			l.report("checkpoint.store", "needs sink.kafka, but the sink is another one", "set checkpoint.store to postgres, file or none")
		}
		l.wantTopic("checkpoint.topic", c.Topic)
		if c.Topic == l.cfg.Errors.DeadLetterTopic && l.cfg.Errors.OnBadEvent == BadEventDeadLetter {
			l.report("checkpoint.topic", "is errors.dead_letter_topic too; compaction would remove dead letters", "name two topics")
		}
	case StorePostgres:
		l.wantTable("checkpoint.table", c.Table)
	case StoreFile:
		if c.Path == "" {
			l.report("checkpoint.path", "is required by checkpoint.store: file", "name a file on a disk that survives a restart")
		}
	}
}

func (l *loader) validateErrors() {
	e := &l.cfg.Errors
	l.wantOneOf("errors.on_bad_event", e.OnBadEvent, BadEventStop, BadEventDeadLetter, BadEventSkip)
	l.wantBetween("errors.drain_timeout", e.DrainTimeout, 0, time.Hour)
	if e.OnBadEvent == BadEventDeadLetter && l.cfg.Sink.Kafka != nil {
		l.wantTopic("errors.dead_letter_topic", e.DeadLetterTopic)
	}
}

func (l *loader) validateObservability() {
	if listen := l.cfg.HTTP.Listen; listen != "" {
		if _, err := splitHostPort(listen); err != nil {
			l.report("http.listen", err.Error(), `write host:port, for example 127.0.0.1:8080; "" turns it off`)
		}
	}
	l.wantOneOf("log.level", l.cfg.Log.Level, "debug", "info", "warn", "error")
	l.wantOneOf("log.format", l.cfg.Log.Format, "json", "console")
}

func (l *loader) wantOneOf(key, got string, allowed ...string) {
	if oneOf(got, allowed...) {
		return
	}
	text, remedy := "must be one of "+strings.Join(allowed, ", "), "write one of them"
	if len(allowed) == 1 {
		text, remedy = "must be "+allowed[0], "write that, or remove the key"
	}
	if meant := nearest.To(got, allowed); meant != "" {
		remedy = "did you mean " + meant + "?"
	}
	l.report(key, text, remedy)
}

func oneOf(got string, allowed ...string) bool { return slices.Contains(allowed, got) }

func (l *loader) wantBetween(key string, got, lowest, highest time.Duration) {
	if got < lowest || got > highest {
		l.report(key, fmt.Sprintf("must be between %v and %v", lowest, highest), "write a duration within these bounds")
	}
}

// wantTopic checks a topic name by Kafka's rule
// (org.apache.kafka.common.internals.Topic).
func (l *loader) wantTopic(key, topic string) {
	const remedy = "use 1 to 249 letters, digits, dots, hyphens or underscores"
	illegal := strings.ContainsFunc(topic, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	})
	if topic == "" || topic == "." || topic == ".." || len(topic) > 249 || illegal {
		l.report(key, "is not a legal topic name", remedy)
	}
}

// wantFile checks that a file which a key names can be read.
func (l *loader) wantFile(key, path string) {
	if path == "" {
		return
	}
	if _, err := os.ReadFile(path); err != nil {
		l.report(key, "cannot be read: "+reason(err), "mend the path, or make the file readable for the connector's user")
	}
}

func splitHostPort(address string) (port uint16, err error) {
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		return 0, fmt.Errorf("is not host:port")
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("has no port between 0 and 65535")
	}
	return uint16(n), nil
}
