package admin

import (
	"cmp"
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline/poll"
)

// PollStatus is a table in poll mode.
type PollStatus struct {
	Table string `json:"table"`
	// UnpublishedRows is counted up to poll.BacklogCounted.
	UnpublishedRows int64   `json:"unpublished_rows"`
	OldestSeconds   float64 `json:"oldest_unpublished_seconds"`
	Index           string  `json:"index,omitempty"`
	// Holders work on lanes of the table at the moment.
	Holders  []poll.LaneHolder `json:"holders"`
	Problems []Problem         `json:"problems,omitempty"`
}

func (r *StatusReport) polled(ctx context.Context, s *session) error {
	if err := s.connectAsRun(ctx); err != nil {
		return err
	}
	r.Polling = []PollStatus{}
	return s.polled(ctx, func(t *poll.Table) error {
		var st PollStatus
		err := catalog.Pooled(ctx, s.conn, func() (err error) {
			st, err = polledStatus(ctx, s.conn, t)
			return err
		})
		if err == nil {
			r.Polling = append(r.Polling, st)
		}
		return err
	})
}

func polledStatus(ctx context.Context, conn *pgx.Conn, t *poll.Table) (PollStatus, error) {
	backlog, err := poll.ReadBacklog(ctx, conn, t)
	if err != nil {
		return PollStatus{}, err
	}
	st := PollStatus{
		Table:           t.Name.String(),
		UnpublishedRows: backlog.Rows,
		OldestSeconds:   backlog.Oldest.Seconds(),
		Index:           t.Index,
	}
	for _, w := range t.Warnings() {
		st.Problems = append(st.Problems, *problem(w))
	}
	st.Holders, err = poll.ReadLanes(ctx, conn, t)
	return st, err
}

// behind is the age of a waiting row from which on the verdict names it.
const behind = 30 * time.Second

func (r *StatusReport) judgePolled() string {
	if r.PostgreSQLError != nil {
		return r.PostgreSQLError.Error
	}
	if why := r.stuck(); why != "" {
		return "events do not get through: " + why
	}
	for _, st := range r.Polling {
		switch {
		case st.UnpublishedRows == 0:
		case len(st.Holders) > 0:
			return "events are being published"
		case st.OldestSeconds > behind.Seconds():
			return "events wait, the oldest for " + seconds(st.OldestSeconds) + ", and nobody is publishing them at this moment: is the connector running?"
		}
	}
	return "next to nothing waits to be published"
}

func (st PollStatus) write(l *lines) {
	l.line("table", "%s", st.Table)
	count := strconv.FormatInt(st.UnpublishedRows, 10)
	if st.UnpublishedRows == poll.BacklogCounted {
		count += " or more"
	}
	l.line("unpublished", "%s, the oldest %s old", count, seconds(st.OldestSeconds))
	l.line("index", "%s", cmp.Or(st.Index, "none"))
	for _, h := range st.Holders {
		l.line("lanes", "%s: %s", laneList(h.Lanes), catalog.Holder{PID: h.PID, Application: h.Application, Address: h.Address, User: h.User})
	}
	if len(st.Holders) == 0 {
		l.line("lanes", "nobody works on any at this moment")
	}
	for _, p := range st.Problems {
		l.trouble("", &p)
	}
}

// laneList shortens 1, 2, 3 to 1-3.
func laneList(lanes []int) string {
	var parts []string
	for i := 0; i < len(lanes); {
		j := i
		for j+1 < len(lanes) && lanes[j+1] == lanes[j]+1 {
			j++
		}
		part := strconv.Itoa(lanes[i])
		if j > i {
			part += "-" + strconv.Itoa(lanes[j])
		}
		parts = append(parts, part)
		i = j + 1
	}
	return strings.Join(parts, ", ")
}
