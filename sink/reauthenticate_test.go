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
	cfg := *DefaultOptions()
	cfg.Brokers = b.Brokers
	cfg.SASL = SASL{Mechanism: "OAUTHBEARER", TokenURL: tokens.URL, ClientID: "cdc", ClientSecret: "s"}
	k := must.Get(newProducer(cfg, nil, kgo.WithHooks(made)))(t)
	t.Cleanup(k.Close)
	x := must.Get(NewTransactions(cfg, "tx"))(t)
	t.Cleanup(x.Close)
	must.OK(t, x.Claim(deadline(t)))
	write := func(n int) {
		deliver(t, k, []*transform.Event{event("lone", "a", 0, n)})
		refused, err := x.Transact(deadline(t), entriesOf([]*transform.Event{event("t", "a", 0, n)}), mark(fmt.Sprint(n)))
		if err != nil || len(refused) > 0 {
			t.Fatal(refused, err)
		}
	}
	write(0)
	sum, connected := 1, made.n.Load()
	for first := tokens.issued.Load(); tokens.issued.Load() < first+5; sum++ {
		write(sum)
	}
	if n := made.n.Load(); n != connected {
		t.Errorf("%d new connections", n-connected)
	}
	for _, topic := range []string{"t", "lone", marks} {
		for n, r := range b.Consume(t, []string{topic}, kafkatest.Count(sum)) {
			if string(r.Value) != fmt.Sprint(n) {
				t.Fatalf("record %d of %s is %q", n, topic, r.Value)
			}
		}
	}
	t.Logf("%d events in each delivery, %d tokens", sum, tokens.issued.Load())
}

// A token of another is refused for good, with the client and the endpoint in the remedy; an
// endpoint that is away is not.
func TestE2ERefusedToken(t *testing.T) {
	b := kafkatest.Start(t, kafkatest.Apache(), kafkatest.Logins("cdc"))
	tokens := startIssuer(t, "") // no subject
	cfg := *DefaultOptions()
	cfg.Brokers = b.Brokers
	cfg.SASL = SASL{Mechanism: "OAUTHBEARER", TokenURL: tokens.URL + "/token", ClientID: "cdc", ClientSecret: "s"}
	err := enter(t.Context(), cfg)
	if failure.ClassOf(err) != failure.Config {
		t.Fatalf("got %v", err)
	}
	must.Contain(t, failure.RemedyOf(err), "client cdc", tokens.URL+"/token")
	tokens.down.Store(true)
	if err := enter(t.Context(), cfg); failure.ClassOf(err) != failure.Transient || failure.RemedyOf(err) == "" {
		t.Errorf("got %v, remedy %q", err, failure.RemedyOf(err))
	}
}
