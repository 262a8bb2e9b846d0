package sink

import (
	"cmp"
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// probing is a probe in a bubble of fake time, of a cluster that answers down.
type probing struct {
	*Probe

	mu      sync.Mutex // guards the rest
	down    error
	hangs   bool
	lost    bool // the next question only
	reports []error
	asked   int
}

// startProbing starts the probe in the middle of the outages.
func startProbing(t *testing.T, outages ...func(*probing)) *probing {
	p := &probing{}
	for _, outage := range outages {
		outage(p)
	}
	p.Probe = newProbe(func(ctx context.Context) ([]error, error) {
		p.mu.Lock()
		down, hangs := p.down, p.hangs
		if p.lost {
			p.lost, down = false, errors.New("broken pipe")
		}
		p.asked++
		p.mu.Unlock()
		if hangs {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
		return nil, down
	}, func() {}, UsualPace)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.Run(ctx, func(err error) { p.change(func(p *probing) { p.reports = append(p.reports, err) }) }, func([]error) {})
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return p
}

func (p *probing) change(fn func(*probing)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fn(p)
}

// after lets time pass and returns the last report; asked: there was a report.
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
	if UsualPace.Silence > 4*time.Second {
		t.Errorf("%s, and the page's second: an outage is not visible within 5 s", UsualPace.Silence)
	}
	refused := errors.New("connection refused")
	for name, outage := range map[string]func(*probing){
		"refused": func(p *probing) { p.down = refused },
		"silent":  func(p *probing) { p.hangs = true },
	} {
		t.Run(name+" shows in time, and ends with the next answer", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := startProbing(t)
				if asked, err := p.after(time.Minute); err != nil || !asked {
					t.Fatalf("reported %v, %t", err, asked)
				}
				p.change(outage)
				if _, err := p.after(UsualPace.Silence - UsualPace.Every - time.Millisecond); err != nil {
					t.Errorf("reported %v too early", err)
				}
				if _, err := p.after(UsualPace.Every + time.Millisecond); err == nil {
					t.Error("nothing is reported")
				}
				if _, err := p.after(time.Minute); err == nil {
					t.Error("reported that it is over")
				}
				p.change(func(p *probing) { p.down, p.hangs = nil, false })
				if asked, err := p.after(UsualPace.Every + UsualPace.Timeout); err != nil || !asked {
					t.Errorf("after it is over reported %v, %t", err, asked)
				}
			})
		})
		t.Run(name+" from the start shows in time", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := startProbing(t, outage)
				if _, err := p.after(UsualPace.Silence); err == nil {
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
			p := startProbing(t, func(p *probing) { p.down = Unreachable(Options{}, kerr.SaslAuthenticationFailed) })
			if _, err := p.after(UsualPace.Silence); err == nil || !strings.Contains(err.Error(), "refused") {
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
	t.Run("one question that fails is no outage", func(t *testing.T) {
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

func onlyErr(_ []error, err error) error { return err }

// askCluster returns a probe of a fake cluster of so many brokers.
func askCluster(t *testing.T, brokers int, change func(*Options), opts ...kfake.Opt) (*Probe, *kfake.Cluster, *atomic.Int64) {
	t.Helper()
	counts := new(atomic.Int64)
	listen := func(network, address string) (net.Listener, error) {
		l, err := net.Listen(network, address)
		return counting{l, counts}, err
	}
	cluster := must.Get(kfake.NewCluster(append(opts, kfake.NumBrokers(brokers), kfake.ListenFn(listen))...))(t)
	t.Cleanup(cluster.Close)
	cfg := *DefaultOptions()
	cfg.Brokers = cluster.ListenAddrs()
	if change != nil {
		change(&cfg)
	}
	p := must.Get(NewProbe(cfg, UsualPace))(t)
	t.Cleanup(p.Close)
	return p, cluster, counts
}

// counting is a listener that counts the accepted connections.
type counting struct {
	net.Listener
	accepted *atomic.Int64
}

func (c counting) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.accepted.Add(1)
	}
	return conn, err
}

// A cluster of hundreds of brokers, asked by each pipeline of each instance, must
// not keep a connection for each pair.
func TestProbeStaysWithTheBrokerThatAnswers(t *testing.T) {
	p, _, counts := askCluster(t, 9, nil)
	for range 30 {
		must.OK(t, onlyErr(p.once(t.Context())))
	}
	if n := counts.Load(); n > 2 {
		t.Errorf("%d connections for 30 questions", n)
	}
}

// Among several brokers, one takes connections and gives no answer, as on a
// machine that was cut off.
func TestProbeOfAClusterWithASilentBroker(t *testing.T) {
	silent, _ := kafkatest.Silent(t)
	for range 5 { // where the client begins is up to chance
		p, _, _ := askCluster(t, 2, func(cfg *Options) {
			cfg.Brokers = []string{silent, cfg.Brokers[0]}
		})
		for range 3 {
			if _, err := p.once(t.Context()); err != nil {
				t.Errorf("a question has no answer: %v", err)
			}
		}
	}
}

// Events go to the brokers' advertised addresses, not to the configured ones.
func TestProbeAsksWhereEventsGo(t *testing.T) {
	nobody := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	advertised := nobody.Addr()
	must.OK(t, nobody.Close())
	var at string
	cluster := must.Get(kfake.NewCluster(kfake.NumBrokers(1), kfake.ListenFn(func(network, address string) (net.Listener, error) {
		l, err := net.Listen(network, address)
		at = l.Addr().String()
		return elsewhere{l, advertised}, err
	})))(t)
	defer cluster.Close()
	cfg := *DefaultOptions()
	cfg.Brokers = []string{at}
	p := must.Get(NewProbe(cfg, UsualPace))(t)
	defer p.Close()
	for range 3 {
		if _, err := p.once(t.Context()); err == nil || !strings.Contains(err.Error(), advertised.String()) {
			t.Errorf("the question's answer: %v", err)
		}
	}
}

// elsewhere is a listener that gives another address.
type elsewhere struct {
	net.Listener
	address net.Addr
}

func (e elsewhere) Addr() net.Addr { return e.address }

// Certificates and logins are renewed broker by broker: one refuses us, and the
// others answer.
func TestProbeOfAClusterWithABrokerThatRefuses(t *testing.T) {
	p, cluster, _ := askCluster(t, 2, func(cfg *Options) {
		cfg.SASL = SASL{Mechanism: "SCRAM-SHA-256", Username: "u", Password: "p"}
	}, kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", "u", "p"))
	cluster.Fault(kfake.Fault{Nodes: []int32{0}, Keys: []kmsg.Key{kmsg.SASLAuthenticate}, TopLevel: true, Err: kerr.SaslAuthenticationFailed, Count: -1})
	answered := 0
	for range 4 { // as many questions as before an outage shows
		if onlyErr(p.once(t.Context())) == nil {
			answered++
		}
	}
	if answered == 0 {
		t.Error("the other broker has not answered")
	}
}

func TestProbeThatIsRefused(t *testing.T) {
	p, cluster, counts := askCluster(t, 3, func(cfg *Options) {
		cfg.SASL = SASL{Mechanism: "SCRAM-SHA-256", Username: "u", Password: "p"}
	}, kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", "u", "p"))
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.SASLAuthenticate}, TopLevel: true, Err: kerr.SaslAuthenticationFailed, Count: -1})
	if _, err := p.once(t.Context()); failure.ClassOf(err) != failure.Config {
		t.Errorf("the answer to a refused login: %v", err)
	}
	if n := counts.Load(); n > mostAsked {
		t.Errorf("%d logins for one question", n)
	}
}

func TestProbeNeedsNoPrivileges(t *testing.T) {
	p, _, _ := askCluster(t, 1, func(cfg *Options) {
		cfg.SASL = SASL{Mechanism: "PLAIN", Username: "cdc", Password: "p"}
	}, kfake.EnableSASL(), kfake.EnableACLs(), kfake.SeedTopics(1, "orders"), kfake.User("PLAIN", "cdc", "p"))
	if _, err := p.once(t.Context()); err != nil {
		t.Error(err)
	}
}

// A paused process hears nobody. The pause is told, and no broker is to blame; a
// later outage shows as any.
func TestProbeOfAPausedProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pauses []time.Duration
		pause := make(chan struct{}, 1)
		p := newProbe(func(context.Context) ([]error, error) { return nil, nil }, func() {}, UsualPace)
		p.Paused = func(d time.Duration) { pauses = append(pauses, d) }
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		var blamed error
		go func() {
			defer close(ended)
			p.Run(ctx, func(err error) {
				blamed = cmp.Or(blamed, err)
				select {
				case <-pause:
					<-time.After(10 * time.Second) // nothing of Run goes on
				default:
				}
			}, func([]error) {})
		}()
		<-time.After(time.Minute)
		pause <- struct{}{}
		<-time.After(time.Minute)
		cancel()
		<-ended
		if blamed != nil || len(pauses) != 1 || pauses[0] < 5*time.Second {
			t.Errorf("blamed %v, told of pauses %v", blamed, pauses)
		}
	})
}
