package admin

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/envelope"
	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
)

// emitSQL has places for create's values, as {name}. The package text/template
// calls methods by name: with it the linker would have to keep every method of
// the program.
//
//go:embed emit.sql
var emitSQL string

// emitFunction is an SQL function writing an event as a message. There is a
// function for each type of payload; they are not overloads of a single name
// because then a JSON literal would be taken for text.
type emitFunction struct {
	name    string
	payload string // the type
}

// emitSchema is where the functions are created; they work in any other, and are
// replaced where they are.
const emitSchema = "public"

// emitFunctions are the functions for the configured prefix: outbox_emit,
// outbox_emit_text and outbox_emit_bytes for the prefix outbox. Prefixes have
// functions of their own, for several connectors in a database.
func emitFunctions(cfg *config.Config) []emitFunction {
	base := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9', r == '_':
			return r
		case 'A' <= r && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '_'
	}, cfg.Source.MessagePrefix) + "_emit"
	if base[0] <= '9' {
		base = "_" + base
	}
	return []emitFunction{{base, "jsonb"}, {base + "_text", "text"}, {base + "_bytes", "bytea"}}
}

// signature is the function with its schema and types, in SQL.
func (f emitFunction) signature(schema string) string {
	return pgsql.Name(schema) + "." + f.name + "(text, text, text, " + f.payload + ", jsonb, uuid)"
}

// create is the function's DDL, without the closing semicolon.
func (f emitFunction) create(cfg *config.Config, schema string) string {
	head, body := f.text(cfg, schema)
	return head + pgsql.Dollars("emit", body)
}

// text is the DDL up to the function's body, and the body.
func (f emitFunction) text(cfg *config.Config, schema string) (head, body string) {
	reserved := []string{pgsql.Literal(""), pgsql.Literal("id")}
	if h := cfg.Event.TypeHeader; h != "" {
		reserved = append(reserved, pgsql.Literal(h))
	}
	format, payload := byte(envelope.FormatText), "convert_to($4::text, 'UTF8')"
	if f.payload == "bytea" {
		format, payload = envelope.FormatBytes, "$4"
	}
	fill := strings.NewReplacer(
		"{name}", pgsql.Name(schema)+"."+f.name,
		"{payload}", f.payload,
		"{body}", payload,
		"{format}", pgsql.Literal(fmt.Sprintf("%02x", format)),
		"{prefix}", pgsql.Literal(cfg.Source.MessagePrefix),
		"{reserved}", strings.Join(reserved, ", "),
		"{tombstones}", strconv.FormatBool(cfg.Event.TombstoneOnEmptyPayload),
	)
	head, body, _ = strings.Cut(emitSQL, "$emit$")
	body, _, _ = strings.Cut(body, "$emit$")
	return fill.Replace(head), fill.Replace(body)
}

// emitState is a database's state of a function.
type emitState uint8

const (
	emitMissing emitState = iota
	emitOther             // of another version, or for other options
	emitCurrent
)

// find looks for the function in all schemas: an operator may have chosen any.
// Of several, it returns the first to be replaced.
func (f emitFunction) find(ctx context.Context, conn *pgx.Conn, cfg *config.Config) (state emitState, schema string, err error) {
	_, body := f.text(cfg, emitSchema)
	found, ok, err := catalog.FindFunction(ctx, conn, f.name, "text, text, text, "+f.payload+", jsonb, uuid", body)
	switch {
	case err != nil:
		return emitMissing, "", err
	case !ok:
		return emitMissing, emitSchema, nil
	case found.Current:
		return emitCurrent, found.Schema, nil
	}
	return emitOther, found.Schema, nil
}

// ensureEmit creates or replaces the functions of message mode.
func (s *setup) ensureEmit(ctx context.Context) error {
	if s.cfg.Source.Mode != config.ModeMessage {
		return nil
	}
	for _, f := range emitFunctions(s.cfg) {
		state, schema, err := f.find(ctx, s.conn, s.cfg)
		if err != nil {
			return err
		}
		if state == emitCurrent {
			s.done("function", f.signature(schema), "exists", "")
			continue
		}
		if err := s.execute(ctx, f.create(s.cfg, schema)); err != nil {
			return fmt.Errorf("create function %s: %w", f.signature(schema), err)
		}
		action := "created"
		if state == emitOther {
			action = "changed"
		}
		s.done("function", f.signature(schema), action, "")
	}
	return nil
}

// emit checks the functions. Nobody needs them: the producer library writes
// messages without.
func (d *doctor) emit(ctx context.Context) {
	if d.cfg.Source.Mode != config.ModeMessage {
		return
	}
	for _, f := range emitFunctions(d.cfg) {
		name := "function " + f.name
		switch state, schema, err := f.find(ctx, d.conn, d.cfg); {
		case err != nil:
			d.fail(name, err)
		case state == emitMissing:
			d.warn(name, "cdc-outbox setup", "%s does not exist; nothing but the outbox library can write events", f.signature(schema))
		case state == emitOther:
			d.warn(name, "cdc-outbox setup, or replace it with what `cdc-outbox setup --print` shows",
				"the function in schema %s is of another version, or for another message prefix, event type header or tombstones, or was altered", schema)
		default:
			d.ok(name, "in schema %s, writes messages with the prefix %s", schema, d.cfg.Source.MessagePrefix)
		}
	}
}

// noTable is the error of a verb that reads tables, without any table, with the
// alternative.
func noTable(what, instead string) error {
	return failure.Configf("messages are in the log only: "+instead, "%s reads tables, and source.tables is empty", what)
}
