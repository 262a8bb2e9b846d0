package sink

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// probing is a probe in a bubble of fake time, of a cluster that answers as down
// says.
type probing struct {
	*Probe

	mu      sync.Mutex // guards the rest
	down    error
	hangs   bool
	lost    bool // the next question only
	reports []error
	asked   int
}

func startProbing(t *testing.T) *probing {
	p := &probing{}
	p.Probe = newProbe(func(ctx context.Context) error {
		p.mu.Lock()
		down, hangs := p.down, p.hangs || p.lost
		p.lost = false
		p.asked++
		p.mu.Unlock()
		if hangs {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		return down
	}, func() {}, UsualPace)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.Run(ctx, func(err error) { p.change(func(p *probing) { p.reports = append(p.reports, err) }) })
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return p
}

func (p *probing) change(fn func(*probing)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fn(p)
}

// after lets time pass and returns what was reported last; asked tells whether
// anything was.
func (p *probing) after(d time.Duration) (asked bool, last error) {
	p.change(func(p *probing) { p.reports = nil })
	<-time.After(d)
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.reports) == 0 {
		return false, nil
	}
	return true, p.reports[len(p.reports)-1]
}

func TestProbe(t *testing.T) {
	refused := errors.New("connection refused")
	for name, outage := range map[string]func(*probing){
		"refused": func(p *probing) { p.down = refused },
		"silent":  func(p *probing) { p.hangs = true },
	} {
		t.Run(name+" shows within 15 seconds, and ends with the next answer", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := startProbing(t)
				if asked, err := p.after(time.Minute); err != nil || !asked {
					t.Fatalf("reported %v, %t", err, asked)
				}
				p.change(outage)
				if _, err := p.after(7 * time.Second); err != nil {
					t.Errorf("after 7 s reported %v", err)
				}
				if _, err := p.after(8 * time.Second); err == nil {
					t.Error("after 15 s nothing is reported")
				}
				p.change(func(p *probing) { p.down, p.hangs = nil, false })
				if asked, err := p.after(UsualPace.Every + UsualPace.Timeout); err != nil || !asked {
					t.Errorf("after it is over reported %v, %t", err, asked)
				}
			})
		})
		t.Run(name+" from the start shows within 15 seconds", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := startProbing(t)
				p.change(outage)
				if _, err := p.after(15 * time.Second); err == nil {
					t.Error("nothing is reported")
				}
			})
		})
		t.Run(name+" is no outage while another client gets answers", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := startProbing(t)
				p.change(outage)
				for range 60 {
					p.Answered()
					if _, err := p.after(time.Second); err != nil {
						t.Fatalf("reported %v", err)
					}
				}
			})
		})
	}
	t.Run("a refused login is not silence", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := startProbing(t)
			p.change(func(p *probing) { p.down = Explain(kerr.SaslAuthenticationFailed) })
			if _, err := p.after(15 * time.Second); err == nil || !strings.Contains(err.Error(), "refused") {
				t.Errorf("reported %v", err)
			}
			p.change(func(p *probing) { p.asked = 0 })
			if _, err := p.after(time.Minute); err == nil {
				t.Error("reported that it is over")
			}
			if n := p.asked; n == 0 || n > int(time.Minute/UsualPace.Refused) {
				t.Errorf("asked %d times in a minute", n)
			}
		})
	})
	t.Run("one question without an answer is no outage", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := startProbing(t)
			for range 10 {
				p.change(func(p *probing) { p.lost = true })
				if asked, err := p.after(2 * (UsualPace.Every + UsualPace.Timeout)); err != nil || !asked || p.lost {
					t.Fatalf("reported %v, %t", err, asked)
				}
			}
		})
	})
}
