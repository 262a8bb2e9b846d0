package testserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

var noted sync.Map // lines of Used standing there already

// Used tells which server the tests have, such as "PostgreSQL", "15.18 (local)", or why
// they have none. It is a line on standard error, once in a package: go test keeps it
// with the package's results, and scripts/test.sh ends with all of them.
func Used(name, which string) {
	line := "ran against: " + name + " " + which + "\n"
	if _, again := noted.LoadOrStore(line, true); !again {
		fmt.Fprint(os.Stderr, line)
	}
}

// Begin starts a server with the options, in a container or as a program of
// this machine, and has tell note it with Used. A server that cannot be noted
// is closed.
func Begin[O any, S io.Closer](ctx context.Context, o O, contained bool, local, container func(context.Context, O) (S, error), tell func(context.Context, S, bool) error) (S, error) {
	start := local
	if contained {
		start = container
	}
	s, err := start(ctx, o)
	if err != nil {
		return s, err
	}
	if err := tell(ctx, s, contained); err != nil {
		var none S
		return none, errors.Join(err, s.Close())
	}
	return s, nil
}

// Where is the place of a server, for Used.
func Where(contained bool) string {
	if contained {
		return "container"
	}
	return "local"
}
