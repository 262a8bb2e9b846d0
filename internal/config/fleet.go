package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/checkpoint/store"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
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
	case len(l.cfg.Pipelines) == 0 && l.cfg.Look == nil:
		l.report("fleet.group", "needs pipelines: a fleet shares them out", "write the connector below pipelines; a second instance of a single one stands by without a fleet")
	case l.cfg.Sink.Kafka == nil:
		l.report("fleet.group", "needs sink.kafka at the top level: the group is in that cluster", "set sink.kafka.brokers at the top level")
	case len(l.problems.List) == 0:
		l.cfg.Sink.Kafka.Validate(l.reporter())
	}
}

// validateMoves refuses a pipeline that a fleet cannot move.
func (l *loader) validateMoves() {
	if l.cfg.Fleet.On() && l.cfg.Checkpoint.Store == store.StoreFile {
		l.report("checkpoint.store", "is on a single machine, and the fleet moves pipelines to others", "set it to kafka or postgres")
	}
}

// Spec is a hash of the specification: members of a fleet with the same may run the pipeline.
// Secrets do not count, as they may differ in form and change at any time, nor do other
// contents of files that each login reads again; the address in source.url does.
func (p Pipeline) Spec() string {
	c := p.Config.withoutRotated()
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
			fmt.Fprintf(h, "%s=%q\n", key, without(c.Source.URL.Reveal(), "password"))
		case !f.secret():
			fmt.Fprintf(h, "%s=%v\n", key, f.value)
		}
	}
	_, _ = io.WriteString(h, p.Name) // a hash takes everything
	return hex.EncodeToString(h.Sum(nil)[:6])
}

// withoutRotated is a copy without the contents of files that each login reads again: a
// rotation needs no new start, and makes no other specification. Another address in a file
// with a whole connection string does.
func (c *Config) withoutRotated() Config {
	out := *c
	out.Source.Password = "" // it is in the URL
	for _, url := range []*setting.Secret{&out.Source.URL, &out.ClaimCheck.Table.URL} {
		switch login := catalog.LoginOf(url.Reveal()); {
		case login.URL.Changes():
			*url = setting.Secret(without(url.Reveal(), "user", "password"))
		case login.Password.Changes():
			*url = setting.Secret(without(url.Reveal(), "password"))
		}
	}
	if out.Sink.Kafka != nil {
		kafka := *out.Sink.Kafka
		kafka.SASL = kafka.SASL.WithoutFiles()
		out.Sink.Kafka = &kafka
	}
	out.Encoding.Registry = out.Encoding.Registry.WithoutFiles()
	out.ClaimCheck = out.ClaimCheck.WithoutFiles()
	return out
}

// without is a valid connection string without its password, and perhaps its user.
func without(text string, names ...string) string {
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" {
		value := regexp.MustCompile(`(^|\s)(` + strings.Join(names, "|") + `)\s*=\s*('(\\.|[^'\\])*'|\S*)`)
		return value.ReplaceAllString(text, "")
	}
	switch {
	case u.User == nil:
	case slices.Contains(names, "user"):
		u.User = nil
	default:
		u.User = url.User(u.User.Username())
	}
	query := u.Query()
	for _, name := range names {
		query.Del(name)
	}
	u.RawQuery = query.Encode()
	return u.String()
}
