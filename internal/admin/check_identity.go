package admin

import (
	"fmt"
	"time"
)

// identity tells the owner of a login, and whether a token could be had: the result.
func (d *doctor) identity(name, who string, ends time.Time, err error) (able bool) {
	switch {
	case who == "": // no matter here, or the connection's
		return true
	case err != nil:
		d.fail(name, fmt.Errorf("%s: %w", who, err))
		return false
	case ends.IsZero():
		d.ok(name, "%s", who)
	case time.Now().After(ends):
		d.warn(name, "compare this machine's clock with the source's", "%s, with a token that has ended at %s", who, ends.UTC().Format(time.RFC3339))
	default:
		d.ok(name, "%s, with a token until %s", who, ends.UTC().Format(time.RFC3339))
	}
	return true
}
