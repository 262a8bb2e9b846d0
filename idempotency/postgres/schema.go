package postgres

import (
	_ "embed" // the Schema
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
)

// defaultTable is the table's name unless an option gives another.
const defaultTable = "idempotency_keys"

// maxTableName leaves room for a partition's suffix within PostgreSQL's 63
// bytes of a name.
const maxTableName = 50

var (
	//go:embed schema.sql
	plainSchema string
	//go:embed schema_partitioned.sql
	partitionedSchema string

	// schemaName matches the table's and the partitions' names in the Schema.
	schemaName = regexp.MustCompile(`\bidempotency_keys(_\w+)?\b`)
)

// Schema returns the statements creating the table where it is missing. They
// may be run together. The name is taken as is: "Keys" is not "keys".
func Schema(o Options) (string, error) {
	name, err := parseTable(o.Table)
	if err != nil {
		return "", err
	}
	schema := plainSchema
	if o.Partitioned {
		schema = partitionedSchema
	}
	return schemaName.ReplaceAllStringFunc(schema, func(s string) string {
		return name.suffixed(strings.TrimPrefix(s, defaultTable))
	}), nil
}

// tableName is a table's name, with or without a schema.
type tableName pgx.Identifier

func parseTable(s string) (tableName, error) {
	if s == "" {
		s = defaultTable
	}
	parts := strings.Split(s, ".")
	for _, part := range parts {
		if part == "" {
			return nil, fmt.Errorf("table %q: want table or schema.table", s)
		}
	}
	if len(parts) > 2 {
		return nil, fmt.Errorf("table %q: want table or schema.table", s)
	}
	if len(parts[len(parts)-1]) > maxTableName {
		return nil, errors.New("table: the name is longer than 50 bytes")
	}
	return parts, nil
}

// String returns the name as SQL.
func (n tableName) String() string { return pgx.Identifier(n).Sanitize() }

// suffixed returns, as SQL, the name with a suffix.
func (n tableName) suffixed(suffix string) string {
	parts := append(pgx.Identifier(nil), n...)
	parts[len(parts)-1] += suffix
	return parts.Sanitize()
}
