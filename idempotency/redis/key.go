package redis

import (
	"strings"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// escapeID keeps a closing brace in an id from ending the hash tag. Different
// ids stay different.
var escapeID = strings.NewReplacer("%", "%25", "}", "%7D")

// escapePattern escapes SCAN's pattern characters.
var escapePattern = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`, "^", `\^`, "-", `\-`)

// name returns the server's key. The part in braces is the hash tag of Redis
// Cluster: keys of your own with the same tag are on the same node.
func (s *Store) name(key storage.Key) string {
	return s.options.Prefix + ":{" + key.Scope + "/" + escapeID.Replace(key.ID) + "}"
}

// scopePattern matches the names of all keys of a scope (without a slash).
func (s *Store) scopePattern(scope string) string {
	return escapePattern.Replace(s.options.Prefix) + ":{" + escapePattern.Replace(scope) + "/*}"
}
