package outbox

import _ "embed" // for the SQL

// Schema is the SQL creating the default table where it is missing. Give it to
// your migrations, or run it: it is a single statement.
//
//go:embed schema.sql
var Schema string

// PartitionedSchema is the SQL creating the default table, partitioned by time,
// where it is missing: two statements, which drivers run at once when there are
// no parameters. See Table.Partition for the partitions.
//
//go:embed partitioned.sql
var PartitionedSchema string
