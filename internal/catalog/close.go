package catalog

import (
	"context"
	"time"
)

// closePatience bounds the farewell to a server that does not answer.
const closePatience = time.Second

// Close closes a connection, or a stream, on which nothing is pending; the zero
// value is none. What it would say does not matter: the server ends what the
// connection held either way.
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
