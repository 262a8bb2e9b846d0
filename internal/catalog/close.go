package catalog

import (
	"context"
	"time"
)

// closePatience bounds the close of a connection to a silent server.
const closePatience = time.Second

// Close closes a connection, or a stream, with nothing pending. It does nothing
// for the zero value. Errors do not matter: the server frees the connection's
// locks and slots in any case.
func Close[C interface {
	comparable
	Close(context.Context) error
}](conn C) {
	var none C
	if conn == none {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closePatience)
	defer cancel()
	_ = conn.Close(ctx)
}
