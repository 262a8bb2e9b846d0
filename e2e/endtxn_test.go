package e2e

import (
	bytesorder "encoding/binary"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// endTxns are ways to brokers. On demand they lose requests to end transactions,
// or the answers, or deliver the requests late.
type endTxns struct {
	t        testing.TB
	fronts   []net.Listener
	targets  []string     // the brokers behind them
	requests atomic.Int32 // to be lost
	answers  atomic.Int32
	delayed  atomic.Int32 // requests to be kept; their connections are lost
	lost     atomic.Int32 // all of them, so far
	running  sync.WaitGroup

	// repeatedly: of each two requests the first loses its answer, so the client
	// asks for each end of a transaction twice.
	repeatedly atomic.Bool
	odd        atomic.Bool  // the next request is the second of two
	held       atomic.Int32 // requests at the gate
	gate       sync.RWMutex // before requests; hold has it
	silent     atomic.Bool  // nothing sent arrives

	mu    sync.Mutex
	conns map[net.Conn]string // by the broker's address
	away  map[string]bool     // brokers without a way to them
	kept  []func(longest time.Duration) (*kmsg.EndTxnResponse, error)
}

// watchEndTxns returns ways ending with the test. There are none yet.
func watchEndTxns(t testing.TB) *endTxns {
	e := &endTxns{t: t, conns: map[net.Conn]string{}, away: map[string]bool{}}
	t.Cleanup(func() {
		for _, front := range e.fronts {
			front.Close()
		}
		e.part(true, e.targets...)
		e.running.Wait()
	})
	return e
}

// listen adds a way from an address to a broker.
func (e *endTxns) listen(address, target string) {
	e.t.Helper()
	front := must.Get(net.Listen("tcp", address))(e.t)
	e.fronts, e.targets = append(e.fronts, front), append(e.targets, target)
	e.running.Go(func() {
		for {
			client, err := front.Accept()
			if err != nil {
				return
			}
			e.pass(client, target)
		}
	})
}

// addresses are where clients connect, as the configuration has them.
func (e *endTxns) addresses() string {
	var all []string
	for _, front := range e.fronts {
		all = append(all, front.Addr().String())
	}
	return strings.Join(all, ", ")
}

// part ends the connections to brokers, and lets no new ones through while away.
func (e *endTxns) part(away bool, targets ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, target := range targets {
		e.away[target] = away
	}
	for c, target := range e.conns {
		if slices.Contains(targets, target) {
			c.Close()
		}
	}
}

func (e *endTxns) pass(client net.Conn, target string) {
	server, err := net.Dial("tcp", target)
	if err != nil {
		client.Close()
		return
	}
	e.mu.Lock()
	if e.away[target] {
		client.Close()
		server.Close()
	}
	e.conns[client], e.conns[server] = target, target
	e.mu.Unlock()
	e.join(client, server)
}

// hold keeps requests for the end of a transaction back until they may go on.
func (e *endTxns) hold() (goOn func()) {
	e.gate.Lock()
	goOn = sync.OnceFunc(e.gate.Unlock)
	e.t.Cleanup(goOn)
	return goOn
}

func (e *endTxns) wait() {
	e.held.Add(1)
	e.gate.RLock()
	defer e.gate.RUnlock()
}

// deliver has brokers get the kept requests, given up by the clients, and returns
// the answers. A paused broker reads the request once resumed; the wait for the
// answer ends after longest.
func (e *endTxns) deliver(longest time.Duration) (answers []*kmsg.EndTxnResponse) {
	e.delayed.Store(0)
	e.mu.Lock()
	kept := e.kept
	e.kept = nil
	e.mu.Unlock()
	for _, deliver := range kept {
		if answer, err := deliver(longest); err == nil { // else the broker has ended the connection, or is paused
			answers = append(answers, answer)
		}
	}
	return answers
}

// keeps is the number of requests kept for deliver.
func (e *endTxns) keeps() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.kept)
}

func (e *endTxns) join(client, server net.Conn) {
	var swallow atomic.Bool // the next answer is to be lost
	var late atomic.Bool    // the next answer is to a kept request
	lateAnswer := make(chan []byte, 1)
	var gap atomic.Bool // something was lost: TCP passes nothing on behind the gap
	silent := func() bool {
		if e.silent.Load() {
			gap.Store(true)
		}
		return gap.Load()
	}
	end := func() {
		client.Close()
		server.Close()
		e.mu.Lock()
		delete(e.conns, client)
		delete(e.conns, server)
		e.mu.Unlock()
	}
	answered := make(chan struct{}) // no more answers are passed on
	e.running.Go(func() {
		defer end()
		for {
			request, err := frame(client)
			if err != nil {
				return
			}
			if silent() {
				continue
			}
			if kmsg.Key(bytesorder.BigEndian.Uint16(request[4:])) == kmsg.EndTxn {
				if take(&e.requests) {
					e.lost.Add(1)
					return
				}
				if take(&e.delayed) {
					late.Store(true)
					client.Close()
					e.mu.Lock()
					e.kept = append(e.kept, func(longest time.Duration) (*kmsg.EndTxnResponse, error) {
						if err := server.SetDeadline(time.Now().Add(longest)); err != nil {
							return nil, err
						}
						if _, err := server.Write(request); err != nil {
							return nil, err
						}
						return endTxnAnswer(request, <-lateAnswer)
					})
					e.mu.Unlock()
					e.lost.Add(1)
					<-answered // ends the connection to the broker
					return
				}
				if take(&e.answers) || e.repeatedly.Load() && e.odd.CompareAndSwap(false, true) {
					swallow.Store(true)
				} else {
					e.odd.Store(false)
				}
				e.wait()
			}
			if _, err := server.Write(request); err != nil {
				return
			}
		}
	})
	e.running.Go(func() {
		defer end()
		defer close(answered)
		defer close(lateAnswer)
		for {
			answer, err := frame(server)
			if err != nil {
				return
			}
			if late.Load() {
				lateAnswer <- answer
				return
			}
			if silent() {
				continue
			}
			if swallow.Load() { // a client has a single such request at a time on the connection
				e.lost.Add(1)
				return
			}
			if _, err := client.Write(answer); err != nil {
				return
			}
		}
	})
}

// endTxnAnswer reads the answer to a request, each as frame returns it.
func endTxnAnswer(request, answer []byte) (*kmsg.EndTxnResponse, error) {
	const lengthIDAndTags = 4 + 4 + 1
	if len(answer) < lengthIDAndTags {
		return nil, io.ErrUnexpectedEOF
	}
	resp := kmsg.NewPtrEndTxnResponse()
	resp.SetVersion(int16(bytesorder.BigEndian.Uint16(request[6:])))
	return resp, resp.ReadFrom(answer[lengthIDAndTags:])
}

// take lowers n, and reports false if n was 0.
func take(n *atomic.Int32) bool {
	for {
		have := n.Load()
		if have <= 0 {
			return false
		}
		if n.CompareAndSwap(have, have-1) {
			return true
		}
	}
}

// frame reads a request or an answer, with its length.
func frame(from io.Reader) ([]byte, error) {
	size := make([]byte, 4)
	if _, err := io.ReadFull(from, size); err != nil {
		return nil, err
	}
	all := make([]byte, 4+bytesorder.BigEndian.Uint32(size))
	copy(all, size)
	_, err := io.ReadFull(from, all[4:])
	return all, err
}
