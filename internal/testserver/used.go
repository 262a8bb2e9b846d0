package testserver

import (
	"fmt"
	"os"
	"sync"
)

var noted sync.Map // lines of Used that stand there already

// Used tells which server the tests have, such as "PostgreSQL", "15.18 (local)", or why
// they have none. It is a line on standard error, once in a package: go test keeps it
// with the package's results, and scripts/test.sh ends with all of them.
func Used(name, which string) {
	line := "ran against: " + name + " " + which + "\n"
	if _, again := noted.LoadOrStore(line, true); !again {
		fmt.Fprint(os.Stderr, line)
	}
}

// Where is the place of a server, for Used.
func Where(contained bool) string {
	if contained {
		return "container"
	}
	return "local"
}
