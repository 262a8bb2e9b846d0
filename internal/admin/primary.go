package admin

import (
	"context"
	"fmt"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// onStandby is the error of a server that is a standby. No part of a connector
// is judged, made or moved there: the slots of a standby are its own, or
// copies, and its log is behind.
func onStandby() error {
	return failure.Configf("add target_session_attrs=read-write to source.url, and list all hosts there",
		"the server is a standby, and the connector reads the primary")
}

// primary refuses a standby.
func (s *session) primary(ctx context.Context) error {
	var recovering bool
	if err := s.conn.QueryRow(ctx, `SELECT pg_is_in_recovery()`).Scan(&recovering); err != nil {
		return fmt.Errorf("look at the server: %w", err)
	}
	if recovering {
		return onStandby()
	}
	return nil
}
