package config

import (
	"context"
	"crypto/sha256"
	"os"
)

// inputs are the files and listings of a configuration, to find changes later.
type inputs struct {
	seen map[string]input // by kind and path
}

type input struct {
	sum  [sha256.Size]byte // zero for a failure, whatever the reason
	read func(context.Context) ([]byte, error)
}

// readFile reads a file, and notes its content.
func (in *inputs) readFile(path string) ([]byte, error) {
	return in.note(context.Background(), "file "+path, func(context.Context) ([]byte, error) { return os.ReadFile(path) })
}

// note reads by a function, and notes the content under the name. The first content counts: if
// a file changes in the middle of a look, the look is out of date.
func (in *inputs) note(ctx context.Context, name string, read func(context.Context) ([]byte, error)) ([]byte, error) {
	text, err := read(ctx)
	if in == nil {
		return text, err
	}
	if in.seen == nil {
		in.seen = map[string]input{}
	}
	if _, ok := in.seen[name]; !ok {
		in.seen[name] = input{sumOf(text, err), read}
	}
	return text, err
}

// changed reads all again, and compares.
func (in *inputs) changed(ctx context.Context) bool {
	for _, before := range in.seen {
		if sumOf(before.read(ctx)) != before.sum {
			return true
		}
	}
	return false
}

func sumOf(text []byte, err error) [sha256.Size]byte {
	if err != nil {
		return [sha256.Size]byte{}
	}
	return sha256.Sum256(text)
}
