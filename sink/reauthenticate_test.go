package sink

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// issuer is a token endpoint with unsigned tokens of four seconds.
type issuer struct {
	*httptest.Server
	issued atomic.Int64
	down   atomic.Bool
	sub    string
}

func startIssuer(t *testing.T, sub string) *issuer {
	i := &issuer{sub: sub}
	i.Server = httptest.NewServer(i)
	t.Cleanup(i.Close)
	return i
}

func (i *issuer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if i.down.Load() {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	i.issued.Add(1)
	part := func(v map[string]any) string {
		text, _ := json.Marshal(v)
		return base64.RawURLEncoding.EncodeToString(text)
	}
	const lifetime = 4
	token := part(map[string]any{"alg": "none"}) + "." + part(map[string]any{"sub": i.sub, "iat": time.Now().Unix(), "exp": time.Now().Unix() + lifetime}) + "."
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","expires_in":%d}`, token, lifetime)
}

// connects counts the connections of a client.
type connects struct{ n atomic.Int64 }

func (c *connects) OnBrokerConnect(kgo.BrokerMetadata, time.Duration, net.Conn, error) { c.n.Add(1) }

// Connections log in again within themselves, with the endpoint's next token, while events
// are written in both deliveries: none is lost, repeated or misordered.
func TestE2ETokensOfSeconds(t *testing.T) {
	b := kafkatest.Start(t, kafkatest.Apache(), kafkatest.Logins("cdc"), kafkatest.Setting("connections.max.reauth.ms", "3000"))
	for _, topic := range []string{"t", "lone", marks} {
		b.CreateTopic(t, topic, 1, nil)
	}
	b.Allow(t, "cdc", kadm.NewACLs().Topics("t", "lone", marks).TransactionalIDs("tx").ResourcePatternType(kadm.ACLPatternLiteral), kadm.OpAll)
	tokens, made := startIssuer(t, "cdc"), new(connects)
	d := newByTokens(t, b, tokens.URL, made).transact()
	d.write()
	connected := made.n.Load()
	for first := tokens.issued.Load(); tokens.issued.Load() < first+5; {
		d.write()
	}
	if n := made.n.Load(); n != connected {
		t.Errorf("%d new connections", n-connected)
	}
	d.wantAll("t", "lone", marks)
	t.Logf("%d events in each delivery, %d tokens", d.sum, tokens.issued.Load())
}

// byTokens writes events with the tokens of an endpoint, in one delivery or in both.
type byTokens struct {
	t   *testing.T
	b   *kafkatest.Broker
	cfg Options
	k   *Kafka
	x   *Transactions // nil: at least once alone
	sum int           // of events written
}

func newByTokens(t *testing.T, b *kafkatest.Broker, tokenURL string, hooks ...kgo.Hook) *byTokens {
	t.Helper()
	d := &byTokens{t: t, b: b, cfg: *DefaultOptions()}
	d.cfg.Brokers = b.Brokers
	d.cfg.SASL = SASL{Mechanism: "OAUTHBEARER", TokenURL: tokenURL, ClientID: "cdc", ClientSecret: "s"}
	d.k = must.Get(newProducer(d.cfg, nil, kgo.WithHooks(hooks...)))(t)
	t.Cleanup(d.k.Close)
	return d
}

// transact adds transactions.
func (d *byTokens) transact() *byTokens {
	d.t.Helper()
	d.x = must.Get(NewTransactions(d.cfg, "tx"))(d.t)
	d.t.Cleanup(d.x.Close)
	must.OK(d.t, d.x.Claim(deadline(d.t)))
	return d
}

func (d *byTokens) write() {
	d.t.Helper()
	deliver(d.t, d.k, []*transform.Event{event("lone", "a", 0, d.sum)})
	if d.x != nil {
		refused, err := d.x.Transact(deadline(d.t), entriesOf([]*transform.Event{event("t", "a", 0, d.sum)}), mark(fmt.Sprint(d.sum)))
		if err != nil || len(refused) > 0 {
			d.t.Fatal(refused, err)
		}
	}
	d.sum++
}

// wantAll wants each event once, in order.
func (d *byTokens) wantAll(topics ...string) {
	d.t.Helper()
	for _, topic := range topics {
		for n, r := range d.b.Consume(d.t, []string{topic}, kafkatest.Count(d.sum)) {
			if string(r.Value) != fmt.Sprint(n) {
				d.t.Fatalf("record %d of %s is %q", n, topic, r.Value)
			}
		}
	}
}

// A refused token may be followed by a better one: the remedy names client and endpoint. An
// endpoint that is away is as a broker that is away.
func TestE2ERefusedToken(t *testing.T) {
	b := kafkatest.Start(t, kafkatest.Apache(), kafkatest.Logins("cdc"))
	tokens := startIssuer(t, "") // no subject
	cfg := *DefaultOptions()
	cfg.Brokers = b.Brokers
	cfg.SASL = SASL{Mechanism: "OAUTHBEARER", TokenURL: tokens.URL + "/token", ClientID: "cdc", ClientSecret: "s"}
	err := enter(t.Context(), cfg)
	if failure.ClassOf(err) != failure.Transient || !isRefusal(err) {
		t.Fatalf("got %v", err)
	}
	must.Contain(t, failure.RemedyOf(err), "client cdc", tokens.URL+"/token")
	tokens.down.Store(true)
	if err := enter(t.Context(), cfg); failure.ClassOf(err) != failure.Transient || isRefusal(err) || failure.RemedyOf(err) == "" {
		t.Errorf("got %v, remedy %q", err, failure.RemedyOf(err))
	}
}
