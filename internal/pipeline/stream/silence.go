package stream

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
)

// senderPatience bounds the silence of a stream while its process on the server
// works. A stopped process looks like a working one.
const senderPatience = time.Hour

// silentSender is the server's process, silent for long, as of the last question.
type silentSender struct {
	catalog.Sender
	asked time.Time
}

// since is how long ago the question was asked; without a question, very long.
func (s *silentSender) since(now time.Time) time.Duration { return now.Sub(s.asked) }

// SenderStatus is a silent sender in /status.
type SenderStatus struct {
	PID           int32   `json:"pid"`
	State         string  `json:"state"`
	SilentSeconds float64 `json:"silent_seconds"`
}

// excused asks the server, beside a silent stream, whether the sending process pid
// works. Then a new connection would not help: the process keeps the slot, and
// another would begin with the same transaction again.
func (s *source) excused(pid int32) func(ctx context.Context, silent time.Duration) error {
	told := false
	return func(ctx context.Context, silent time.Duration) error {
		sender, err := s.askSender(ctx, pid, silent)
		if err != nil {
			return err
		}
		s.health.senderWorks(sender)
		if !told {
			told = true
			s.log.Warn("the server sends nothing, but its process works, and is given time", zap.Stringer("sender", sender),
				zap.Duration("silent", silent), zap.Duration("at_most", senderPatience))
		}
		return nil
	}
}

func (s *source) askSender(ctx context.Context, pid int32, silent time.Duration) (sender catalog.Sender, err error) {
	if silent > senderPatience {
		return sender, fmt.Errorf("process %d has had %s", pid, senderPatience)
	}
	sender, err = catalog.AskSender(ctx, s.opts.URL, s.server, s.opts.Slot, pid)
	if err == nil && !sender.Works() {
		err = fmt.Errorf("%s, so the connection is broken", sender)
	}
	return sender, err
}

// senderWorks notes the state of the stream's process, silent for long.
func (h *Health) senderWorks(sender catalog.Sender) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sender = silentSender{sender, time.Now()}
}

// senderSilent reports whether the stream has been silent since the server was asked
// about the process. The caller holds mu.
func (h *Health) senderSilent(now time.Time) bool {
	return h.sender.since(now) < h.silent()
}

// senderReason is why an instance with a silent sender is not ready. The caller holds mu.
func (h *Health) senderReason() string {
	return fmt.Sprintf("the server has sent nothing for %s, as of a large transaction that is not published: its %s, and is given time",
		h.silent().Round(time.Second), h.sender)
}

// senderStatus is nil unless the process is silent. The caller holds mu.
func (h *Health) senderStatus(now time.Time) *SenderStatus {
	if !h.senderSilent(now) {
		return nil
	}
	return &SenderStatus{PID: h.sender.PID, State: h.sender.String(), SilentSeconds: h.silent().Seconds()}
}
