package sink

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/container"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
)

// signer is an issuer of signed tokens of four seconds. Brokers get the public key.
type signer struct {
	*httptest.Server
	t *testing.T

	mu     sync.Mutex
	key    *ecdsa.PrivateKey
	kid    int // of key
	issued int
}

func startSigner(t *testing.T) *signer {
	s := &signer{t: t}
	s.rotate()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /token", s.token)
	mux.HandleFunc("GET /jwks", s.keys)
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

// rotate replaces the key at once: brokers know the new one only when they ask again.
func (s *signer) rotate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.key = newKey(s.t)
	s.kid++
}

func (s *signer) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.issued
}

func (s *signer) keys(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	point, _ := s.key.PublicKey.Bytes() // 4, X and Y
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"keys": []map[string]string{{"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig",
		"kid": strconv.Itoa(s.kid), "x": base64.RawURLEncoding.EncodeToString(point[1:33]), "y": base64.RawURLEncoding.EncodeToString(point[33:])}}})
}

func (s *signer) token(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.issued++
	part := func(v map[string]any) string {
		text, _ := json.Marshal(v)
		return base64.RawURLEncoding.EncodeToString(text)
	}
	const lifetime = 4
	now := time.Now().Unix()
	text := part(map[string]any{"alg": "ES256", "kid": strconv.Itoa(s.kid)}) + "." +
		part(map[string]any{"iss": "signer", "aud": "brokers", "sub": "cdc", "iat": now, "exp": now + lifetime})
	sum := sha256.Sum256([]byte(text))
	r, v, err := ecdsa.Sign(rand.Reader, s.key, sum[:])
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	signature := make([]byte, 64)
	for half, n := range []*big.Int{r, v} {
		n.FillBytes(signature[32*half : 32*half+32])
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"access_token":%q,"token_type":"Bearer","expires_in":%d}`, text+"."+base64.RawURLEncoding.EncodeToString(signature), lifetime)
}

// Brokers verify signed tokens by the issuer's keys. Behind a change of the key, they refuse the
// first tokens, and then ask for the keys: no event is lost, repeated or misordered meanwhile.
func TestE2ESignedTokens(t *testing.T) {
	if contained, _ := container.Chosen(""); contained {
		t.Skip("a broker in a container does not reach the issuer in this process")
	}
	issuer := startSigner(t)
	t.Setenv("JAVA_TOOL_OPTIONS", "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls="+issuer.URL+"/jwks")
	const validator = "listener.name.plaintext.oauthbearer.sasl."
	b := kafkatest.Start(t, kafkatest.Apache(), kafkatest.Logins("cdc"), kafkatest.Setting("connections.max.reauth.ms", "3000"),
		kafkatest.Setting(validator+"server.callback.handler.class", "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"),
		kafkatest.Setting(validator+"oauthbearer.jwks.endpoint.url", issuer.URL+"/jwks"),
		kafkatest.Setting(validator+"oauthbearer.expected.issuer", "signer"), kafkatest.Setting(validator+"oauthbearer.expected.audience", "brokers"))
	b.CreateTopic(t, "lone", 1, nil)
	b.Allow(t, "cdc", kadm.NewACLs().Topics("lone").ResourcePatternType(kadm.ACLPatternLiteral), kadm.OpAll)
	made := new(connects)
	d := newByTokens(t, b, issuer.URL+"/token", made)
	for range 2 {
		for first := issuer.count(); issuer.count() < first+3; {
			d.write()
		}
		issuer.rotate()
	}
	for first := issuer.count(); issuer.count() < first+3; {
		d.write()
	}
	d.wantAll("lone")
	t.Logf("%d events, %d tokens, %d connections and refusals", d.sum, issuer.count(), made.n.Load())
}
