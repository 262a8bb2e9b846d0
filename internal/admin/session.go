package admin

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/poll"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
	"github.com/cdc-outbox/cdc-outbox/wal"
)

// session is a verb at work on the source of a configuration.
type session struct {
	cfg    *config.Config
	router *transform.Router
	conn   *pgx.Conn // nil: not connected
	// described are the tables of a stream that the router knows the columns of, by OID.
	described map[uint32]*pg.Relation
}

func newSession(cfg *config.Config) (*session, error) {
	router, err := transform.New(cfg.Event, cfg.Route)
	if err != nil {
		return nil, err
	}
	return &session{cfg: cfg, router: router}, nil
}

// open returns a connected session, for close to end.
func open(ctx context.Context, cfg *config.Config) (*session, error) {
	s, err := newSession(cfg)
	if err != nil {
		return nil, err
	}
	return s, s.connect(ctx, catalog.Connect)
}

func (s *session) connect(ctx context.Context, kind func(context.Context, string) (*pgx.Conn, error)) (err error) {
	if s.conn, err = kind(ctx, s.cfg.Source.URL.Reveal()); err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	return nil
}

// connectAsRun opens the kind of connection run uses.
func (s *session) connectAsRun(ctx context.Context) error {
	if s.polls() {
		return s.connect(ctx, catalog.ConnectPooled)
	}
	return s.connect(ctx, catalog.Connect)
}

func (s *session) close() { catalog.Close(s.conn) }

func (s *session) polls() bool { return s.cfg.Source.Mode == config.ModePoll }

// source is the configured source.
func (s *session) source() catalog.Source {
	c := s.cfg.Source
	return catalog.Source{Slot: c.Slot, Publication: c.Publication, Tables: c.Tables, Needed: s.router.Needed}
}

// replication opens a replication connection.
func (s *session) replication(ctx context.Context) (*pgconn.PgConn, error) {
	repl, err := catalog.ConnectReplication(ctx, s.cfg.Source.URL.Reveal())
	if err != nil {
		return nil, fmt.Errorf("open replication connection: %w", err)
	}
	return repl, nil
}

// stream reads a slot from start on, and takes repl over.
func (s *session) stream(ctx context.Context, repl *pgconn.PgConn, slot string, start, confirmed pg.LSN) (*wal.Stream, error) {
	c := s.cfg.Source
	charset, err := catalog.ReadCharset(ctx, s.conn)
	if err != nil {
		catalog.Close(repl)
		return nil, err
	}
	return wal.Open(ctx, repl, wal.Options{
		Charset:         charset,
		Slot:            slot,
		Publication:     c.Publication,
		Start:           start,
		Confirmed:       confirmed,
		StatusInterval:  c.StatusInterval,
		LivenessTimeout: c.LivenessTimeout,
		Messages:        c.Mode == config.ModeMessage,
		Prefix:          c.MessagePrefix,
		MessagesOnly:    len(c.Tables) == 0,
	})
}

// patient is catalog.Patient for a connection to the source.
func (s *session) patient(ctx context.Context, conn *pgconn.PgConn, tell func(catalog.Waiting)) (end func()) {
	return catalog.Patient(ctx, s.cfg.Source.URL.Reveal(), conn, tell)
}

// execute runs statements ("" for none), up to the first error.
func (s *session) execute(ctx context.Context, statements ...string) error {
	for _, sql := range statements {
		if sql == "" {
			continue
		}
		if _, err := s.conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// polled calls do for each table in poll mode, up to the first error.
func (s *session) polled(ctx context.Context, do func(*poll.Table) error) error {
	for _, name := range s.cfg.Source.Tables {
		t, err := s.readPolled(ctx, name)
		if err == nil {
			err = do(t)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *session) readPolled(ctx context.Context, name pg.Table) (t *poll.Table, err error) {
	err = catalog.Pooled(ctx, s.conn, func() error {
		t, err = poll.ReadTable(ctx, s.conn, s.cfg.Source.Poll, s.cfg.Event, s.router, name)
		return err
	})
	return t, err
}

// moves remembers as much as run does.
func (s *session) moves() transform.Moves {
	bytes := sink.DefaultOptions().MaxBufferedBytes
	if kafka := s.cfg.Sink.Kafka; kafka != nil {
		bytes = kafka.MaxBufferedBytes
	}
	return transform.MovesWithin(bytes)
}
