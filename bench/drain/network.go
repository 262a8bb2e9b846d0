package main

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/cdc-outbox/cdc-outbox/bench/internal/figures"
	"github.com/cdc-outbox/cdc-outbox/bench/internal/rig"
)

// nearName is the connector without a delay, through relays all the same.
const nearName = "cdc-outbox without delay"

// network drains through relays that delay each direction.
func network(ctx context.Context, s *stage, name string) error {
	db, err := s.database(ctx, 1, s.load)
	if err != nil {
		return err
	}
	defer db.Close()
	b, err := db.Fill(ctx, "bench_backlog", s.load)
	if err != nil {
		return fmt.Errorf("fill the backlog: %w", err)
	}
	near, err := s.distant(ctx, source{db, db.URL, b}, 0)
	if err != nil {
		return err
	}
	defer near.close()
	for _, text := range s.delays {
		delay, err := time.ParseDuration(text)
		if err != nil {
			return err
		}
		if err := s.far(ctx, fmt.Sprintf("%s, %s each way", name, delay), near, delay); err != nil {
			return err
		}
	}
	return nil
}

// far compares one delay, at three places, with none.
func (s *stage) far(ctx context.Context, name string, near *distant, delay time.Duration) error {
	far, err := s.distant(ctx, near.direct, delay)
	if err != nil {
		return err
	}
	defer far.close()
	none := figures.Turn{Subject: nearName, Take: s.drainTo(near.broker, near.source)}
	limit := figures.Turn{Subject: limitName, Take: s.readings(far.Events(), far.recvlogical(rig.Publication))}
	for _, place := range []struct {
		name  string
		turns []figures.Turn
	}{
		{"PostgreSQL", []figures.Turn{{Subject: oursName, Take: s.drainTo(near.broker, far.source)}, none, limit}},
		{"Kafka", []figures.Turn{{Subject: oursName, Take: s.drainTo(far.broker, near.source)}, none}},
		{"both", []figures.Turn{{Subject: oursName, Take: s.drainTo(far.broker, far.source)}, none}},
	} {
		if err := s.play(ctx, label(name+" before "+place.name, far.broker.Name, s.load), place.turns); err != nil {
			return err
		}
	}
	return nil
}

// distant is a source and a broker behind relays.
type distant struct {
	source
	direct source // without the relay
	relay  *rig.Relay
	broker *rig.Broker
}

func (s *stage) distant(ctx context.Context, direct source, delay time.Duration) (*distant, error) {
	u, err := url.Parse(direct.url)
	if err != nil {
		return nil, err
	}
	d := &distant{source: direct, direct: direct}
	if d.relay, err = rig.StartRelay(ctx, u.Host, delay); err != nil {
		return nil, err
	}
	u.Host = d.relay.Addr
	d.url = u.String()
	if d.broker, err = rig.StartFar(ctx, s.kafka, delay); err != nil {
		d.relay.Stop()
		return nil, err
	}
	return d, nil
}

func (d *distant) close() {
	d.relay.Stop()
	d.broker.Stop()
}
