package admin

import (
	"context"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
)

// onStandby is the error of a standby. No part of a connector is judged, made or
// moved there: the slots of a standby are its own, or copies, and its log is
// behind.
func onStandby() error {
	return failure.Configf("add target_session_attrs=read-write to source.url, and list all hosts there",
		"the server is a standby, and the connector reads the primary")
}

// primary refuses a standby.
func (s *session) primary(ctx context.Context) error {
	recovering, err := catalog.InRecovery(ctx, s.conn)
	if err == nil && recovering {
		err = onStandby()
	}
	return err
}
