package failure_test

import (
	"errors"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// Several mistakes have a remedy each.
func TestSeveralMistakesHaveSeveralRemedies(t *testing.T) {
	id, key := failure.Configf("name event.id", "no id"), failure.Configf("name event.key", "no key")
	for _, c := range []struct {
		err  error
		want string
	}{
		{errors.Join(id, key), "name event.id; name event.key"},
		{errors.Join(id, errors.Join(key, id)), "name event.id; name event.key"},
		{errors.Join(id, errors.New("close the connection")), "name event.id"},
		{failure.Join(id, failure.Lossf("decide", "events are lost")), "decide"},
		{id, "name event.id"},
		{nil, ""},
	} {
		if got := failure.RemedyOf(c.err); got != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
}
