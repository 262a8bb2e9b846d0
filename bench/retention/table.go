package main

import (
	"context"
	"fmt"
)

// size is of the table at a single moment.
type size struct {
	bytes      int64 // with indexes
	dead       int64 // row versions not freed by vacuum yet
	rows       int
	unreceived int64 // number of a row gone without having been received, or -1
}

// lookAtTable reads the table, and finds the rows gone: committed before the look, and
// not there. Each must have been received.
func (s *stage) lookAtTable(ctx context.Context) (z size, err error) {
	z.unreceived = -1
	known := s.log.known()
	committed := make([]bool, known)
	for n := range committed {
		committed[n] = s.log.acked[n].Load() != 0
	}
	rows, err := s.db.Conn.Query(ctx, `SELECT n FROM outbox`)
	if err != nil {
		return z, fmt.Errorf("read the table: %w", err)
	}
	present := make([]bool, known)
	for rows.Next() {
		var n int64
		if err := rows.Scan(&n); err != nil {
			return z, fmt.Errorf("read the table: %w", err)
		}
		z.rows++
		if n < known {
			present[n] = true
		}
	}
	if err := rows.Err(); err != nil {
		return z, fmt.Errorf("read the table: %w", err)
	}
	for n := range committed {
		if committed[n] && !present[n] && s.log.received[n].Load() == 0 {
			z.unreceived = int64(n)
		}
	}
	err = s.db.Conn.QueryRow(ctx, `SELECT pg_total_relation_size('outbox'), n_dead_tup FROM pg_stat_user_tables WHERE relname = 'outbox'`).Scan(&z.bytes, &z.dead)
	if err != nil {
		return z, fmt.Errorf("read the size of the table: %w", err)
	}
	return z, nil
}
