package admin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
)

// readTransactions lists the cluster's writing transactions, the longest open
// first, and last those of an age hidden from the role.
func readTransactions(ctx context.Context, conn *pgx.Conn) ([]catalog.Writer, error) {
	list, err := catalog.ReadWriters(ctx, conn)
	for i := range list {
		if age := list[i].Age; age != nil {
			*age = age.Round(time.Second)
		}
	}
	slices.SortStableFunc(list, func(a, b catalog.Writer) int { return cmp.Compare(shownAge(b), shownAge(a)) })
	return list, err
}

// shownAge is -1 for an age hidden from the role.
func shownAge(w catalog.Writer) time.Duration {
	if w.Age == nil {
		return -1
	}
	return *w.Age
}

// mostTransactions bounds how many are listed in a message.
const mostTransactions = 5

func describeTransactions(list []catalog.Writer) string {
	if len(list) == 0 {
		return "no transaction that this role can see"
	}
	texts := make([]string, 0, mostTransactions)
	for _, t := range list[:min(len(list), mostTransactions)] {
		what := fmt.Sprintf("the transaction of pid %d", t.PID)
		if t.GID != "" {
			what = "the prepared transaction " + pgsql.Literal(t.GID)
		}
		what += fmt.Sprintf(" (%s in database %s", cmp.Or(t.User, "unknown role"), cmp.Or(t.Database, "unknown"))
		if t.Age != nil {
			what += fmt.Sprintf(", open for %s", *t.Age)
		}
		texts = append(texts, what+")")
	}
	if more := len(list) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("%d more", more))
	}
	return strings.Join(texts, ", ")
}

// endTransactions are the statements to end transactions; a prepared transaction
// ends only in its own database.
func endTransactions(list []catalog.Writer) []string {
	var sql []string
	for _, t := range list[:min(len(list), mostTransactions)] {
		sql = append(sql, t.Blocker().End())
	}
	return sql
}
