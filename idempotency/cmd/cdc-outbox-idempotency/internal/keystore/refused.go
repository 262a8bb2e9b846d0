package keystore

import (
	"errors"
	"slices"
	"strings"

	"github.com/aws/smithy-go"
	"github.com/jackc/pgx/v5/pgconn"
	goredis "github.com/redis/go-redis/v9"
)

// A server's refusals for an operator to mend: the password, the rights, the
// database, the table.
var (
	// Classes of SQLSTATE: authorization, database, syntax and access rules.
	refusedByPostgres = []string{"28", "3D", "42"}
	refusedByRedis    = []string{
		"WRONGPASS", "NOAUTH", "NOPERM", "WRONGTYPE", "MOVED", "This instance has cluster support disabled",
	}
	refusedByDynamoDB = []string{
		"ResourceNotFoundException", "AccessDeniedException", "UnrecognizedClientException",
		"InvalidSignatureException", "ValidationException",
	}
)

// Refused tells whether the store's server will go on refusing until a repair.
func Refused(err error) bool {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return slices.ContainsFunc(refusedByPostgres, func(class string) bool { return strings.HasPrefix(e.Code, class) })
	}
	if e, ok := errors.AsType[smithy.APIError](err); ok {
		return slices.Contains(refusedByDynamoDB, e.ErrorCode())
	}
	return slices.ContainsFunc(refusedByRedis, func(prefix string) bool { return goredis.HasErrorPrefix(err, prefix) })
}
