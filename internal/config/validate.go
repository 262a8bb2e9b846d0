package config

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/setting"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// validate judges the values and their combinations.
func (l *loader) validate() {
	l.validatePipeline()
	l.validateObservability()
	l.validateFleet()
}

// validatePipeline judges the options of each pipeline. Each part judges its
// own.
func (l *loader) validatePipeline() {
	report := l.reporter()
	l.validateSource(report)
	l.cfg.Source.Poll.Validate(report)
	l.cfg.Event.Validate(report)
	l.cfg.Route.Validate(report)
	l.validateSink(report)
	l.cfg.Encoding.Validate(report)
	l.cfg.Checkpoint.Validate(report)
	l.validateErrors(report)
	l.cfg.Retention.Validate(report)
	l.validateMoves()
	l.validateCombinations()
	l.validateRouting()
}

// reporter adds the parts' faults to the problems. An item of a list is shown
// as written.
func (l *loader) reporter() setting.Report {
	return func(f setting.Fault) {
		text := f.Text
		if f.Item > 0 {
			item := fmt.Sprintf("item %d", f.Item)
			if written := l.given[f.Key].items; f.Item <= len(written) {
				item = strings.TrimSpace(item + " " + display(written[f.Item-1]))
			}
			text = item + " " + text
		}
		l.report(f.Key, text, f.Remedy)
	}
}

func (l *loader) validateSink(report setting.Report) {
	switch s := l.cfg.Sink; {
	case s.Kafka != nil:
		s.Kafka.Validate(report)
	case s.Stdout == nil:
		l.report("sink", "names no sink", "set sink.kafka or sink.stdout")
	}
}

// mostParked bounds errors.quarantine_limit.
const mostParked = 1_000_000

func (l *loader) validateErrors(report setting.Report) {
	e := &l.cfg.Errors
	report.OneOf("errors.on_bad_event", e.OnBadEvent, transform.BadEventStop, transform.BadEventDeadLetter, transform.BadEventSkip, transform.BadEventQuarantine)
	report.OneOf("errors.on_loss", e.OnLoss, LossStop, LossRepair)
	report.Between("errors.drain_timeout", e.DrainTimeout, 0, time.Hour)
	if e.OnBadEvent == transform.BadEventDeadLetter && l.cfg.Sink.Kafka != nil {
		report.Topic("errors.dead_letter_topic", e.DeadLetterTopic)
	}
	if e.OnBadEvent == transform.BadEventQuarantine {
		report.Topic("errors.quarantine_topic", e.QuarantineTopic)
		report.Number("errors.quarantine_limit", e.QuarantineLimit, 1, mostParked)
	}
}

func (l *loader) validateObservability() {
	report := l.reporter()
	if listen := l.cfg.HTTP.Listen; listen != "" {
		if err := checkAddress(listen); err != nil {
			l.report("http.listen", err.Error(), `write host:port, for example 127.0.0.1:8080; "" turns it off`)
		}
	}
	l.cfg.Tracing.Validate(report)
	l.cfg.HTTP.Validate(report)
	report.OneOf("log.level", l.cfg.Log.Level, "debug", "info", "warn", "error")
	report.OneOf("log.format", l.cfg.Log.Format, "json", "console")
}

func checkAddress(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("is not host:port")
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("has no port between 0 and 65535")
	}
	return nil
}
