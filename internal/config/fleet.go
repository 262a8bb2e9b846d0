package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/url"
	"regexp"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

// validateFleet judges the needs of a fleet in the whole configuration.
func (l *loader) validateFleet() {
	f := &l.cfg.Fleet
	f.Validate(l.reporter())
	if !f.On() {
		return
	}
	switch {
	case len(l.cfg.Pipelines) == 0:
		l.report("fleet.group", "needs pipelines: a fleet shares them out", "write the connector below pipelines; a second instance of a single one stands by without a fleet")
	case l.cfg.Sink.Kafka == nil:
		l.report("fleet.group", "needs sink.kafka at the top level: the group is in that cluster", "set sink.kafka.brokers at the top level")
	case len(l.problems.List) == 0:
		l.cfg.Sink.Kafka.Validate(l.reporter())
	}
	for _, p := range l.cfg.Pipelines {
		if p.Config.Checkpoint.Store == store.StoreFile {
			l.add(Problem{
				Key: pipelinesKey + "." + p.Name + ".checkpoint.store", Value: `"file"`,
				Text: "is on a single machine, and the fleet moves pipelines to others", Remedy: "set it to kafka or postgres",
			})
		}
	}
}

// Spec is a hash of the specification: members of a fleet with the same may run the pipeline.
// Secrets do not count, as they may differ in form and change at any time; the address in
// source.url does.
func (p Pipeline) Spec() string {
	c := *p.Config
	if c.Sink.Kafka == nil {
		c.Sink.Kafka = &sink.Options{}
	}
	h := sha256.New()
	fields := fieldsOf(&c)
	fields.drop(processSections...)
	for _, key := range fields.keys {
		f := fields.byKey[key]
		switch {
		case key == "source.url":
			fmt.Fprintf(h, "%s=%q\n", key, withoutPassword(c.Source.URL.Reveal()))
		case !f.secret():
			fmt.Fprintf(h, "%s=%v\n", key, f.value)
		}
	}
	_, _ = io.WriteString(h, p.Name) // a hash takes everything
	return hex.EncodeToString(h.Sum(nil)[:6])
}

var passwordValue = regexp.MustCompile(`(^|\s)password\s*=\s*('(\\.|[^'\\])*'|\S*)`)

// withoutPassword is a valid connection string without its password.
func withoutPassword(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" {
		return passwordValue.ReplaceAllString(text, "")
	}
	if u.User != nil {
		u.User = url.User(u.User.Username())
	}
	query := u.Query()
	query.Del("password")
	u.RawQuery = query.Encode()
	return u.String()
}
