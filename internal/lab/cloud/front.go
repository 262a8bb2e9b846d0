package cloud

import (
	"context"
	"crypto/hmac"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/testserver"
)

// Front is a cloud's PostgreSQL: a real server behind a login by tokens. Tokens are
// checked at the login only. Several goroutines may use Front.
type Front struct {
	Addr string

	cloud  *Cloud
	server string // URL of the real one

	mu       sync.Mutex
	logins   int
	refused  int
	identity map[string]bool // by token or access key
	open     map[net.Conn]bool
}

// Front starts a Front before the server with the URL, until the test's end.
func (c *Cloud) Front(t testing.TB, server string) *Front {
	f := &Front{cloud: c, server: server, identity: map[string]bool{}, open: map[net.Conn]bool{}}
	f.Addr = testserver.Serve(t, f.serve)
	return f
}

// URL is a connection string by way of the front, with the user and database of
// the server's.
func (f *Front) URL(t testing.TB) string {
	u := must.Get(url.Parse(f.server))(t)
	u.Host, u.User, u.RawQuery = f.Addr, url.User(u.User.Username()), "sslmode=disable"
	return u.String()
}

// Seen counts logins, refusals and the tokens or access keys of logins.
func (f *Front) Seen() (logins, refused, identities int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.logins, f.refused, len(f.identity)
}

// Cut ends all connections.
func (f *Front) Cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for conn := range f.open {
		_ = conn.Close()
	}
}

func (f *Front) serve(conn net.Conn) {
	f.mu.Lock()
	f.open[conn] = true
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.open, conn)
		f.mu.Unlock()
	}()
	client := pgproto3.NewBackend(conn, conn)
	hello, err := client.ReceiveStartupMessage()
	for err == nil {
		switch m := hello.(type) {
		case *pgproto3.SSLRequest, *pgproto3.GSSEncRequest:
			if _, err = conn.Write([]byte{'N'}); err == nil {
				hello, err = client.ReceiveStartupMessage()
			}
		case *pgproto3.CancelRequest:
			f.cancel(m)
			return
		case *pgproto3.StartupMessage:
			f.session(conn, client, m.Parameters)
			return
		}
	}
}

func (f *Front) session(conn net.Conn, client *pgproto3.Backend, params map[string]string) {
	client.Send(&pgproto3.AuthenticationCleartextPassword{})
	if client.Flush() != nil || client.SetAuthType(pgproto3.AuthTypeCleartextPassword) != nil {
		return
	}
	answer, err := client.Receive()
	password, ok := answer.(*pgproto3.PasswordMessage)
	if err != nil || !ok {
		return
	}
	if !f.admit(params["user"], password.Password) {
		client.Send(&pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: "28000",
			Message: `PAM authentication failed for user "` + params["user"] + `"`, Routine: "auth_failed"})
		_ = client.Flush()
		return
	}
	server, err := f.connect(params)
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		client.Send(&pgproto3.ErrorResponse{Severity: pg.Severity, SeverityUnlocalized: pg.SeverityUnlocalized, Code: pg.Code, Message: pg.Message, Routine: pg.Routine})
		_ = client.Flush()
	}
	if err != nil {
		return
	}
	client.Send(&pgproto3.AuthenticationOk{})
	for name, value := range server.ParameterStatuses {
		client.Send(&pgproto3.ParameterStatus{Name: name, Value: value})
	}
	client.Send(&pgproto3.BackendKeyData{ProcessID: server.PID, SecretKey: server.SecretKey})
	client.Send(&pgproto3.ReadyForQuery{TxStatus: server.TxStatus})
	if client.Flush() != nil {
		_ = server.Conn.Close()
		return
	}
	var copying sync.WaitGroup
	copying.Go(func() {
		_, _ = io.Copy(conn, server.Conn)
		_ = conn.Close()
	})
	_, _ = io.Copy(server.Conn, conn)
	_ = server.Conn.Close()
	copying.Wait()
}

const patience = time.Minute

// connect opens the session at the real server.
func (f *Front) connect(params map[string]string) (*pgconn.HijackedConn, error) {
	cfg, err := pgconn.ParseConfig(f.server)
	if err != nil {
		return nil, err
	}
	for name, value := range params {
		switch name {
		case "user":
		case "database":
			cfg.Database = value
		default:
			cfg.RuntimeParams[name] = value
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgconn.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return conn.Hijack()
}

// cancel passes a request on.
func (f *Front) cancel(m *pgproto3.CancelRequest) {
	cfg, err := pgconn.ParseConfig(f.server)
	if err != nil {
		return
	}
	network, address := pgconn.NetworkAddress(cfg.Host, cfg.Port)
	conn, err := net.Dial(network, address)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	text := binary.BigEndian.AppendUint32(nil, uint32(12+len(m.SecretKey)))
	text = binary.BigEndian.AppendUint32(text, 80877102)
	text = binary.BigEndian.AppendUint32(text, m.ProcessID)
	_, _ = conn.Write(append(text, m.SecretKey...))
}

// admit judges a login.
func (f *Front) admit(user, password string) bool {
	who, ok := password, f.cloud.Valid(password)
	if strings.Contains(password, "X-Amz-Signature=") {
		who, ok = f.signed(user, password)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !ok {
		f.refused++
		return false
	}
	f.logins++
	f.identity[who] = true
	return true
}

// signed judges a token for RDS: owner, user, age and signature.
func (f *Front) signed(user, token string) (accessKey string, ok bool) {
	u, err := url.Parse("https://" + token)
	if err != nil {
		return "", false
	}
	q := u.Query()
	scope := strings.Split(q.Get("X-Amz-Credential"), "/")
	at, err := time.Parse("20060102T150405Z", q.Get("X-Amz-Date"))
	if err != nil || len(scope) != 5 || u.Host != f.Addr || q.Get("Action") != "connect" || q.Get("DBUser") != user || scope[2] != Region || scope[3] != "rds-db" {
		return "", false
	}
	keys, ok := f.cloud.Keys(scope[0])
	if age := f.cloud.time().Sub(at); !ok || q.Get("X-Amz-Security-Token") != keys.Session || q.Get("X-Amz-Expires") != "900" || age > 15*time.Minute || age < -time.Minute {
		return "", false
	}
	request, err := http.NewRequest(http.MethodGet, "https://"+f.Addr+"?"+url.Values{"Action": {"connect"}, "DBUser": {user}, "X-Amz-Expires": {"900"}}.Encode(), nil)
	if err != nil {
		return "", false
	}
	signed, _, err := v4.NewSigner().PresignHTTP(context.Background(), aws.Credentials{AccessKeyID: keys.AccessKey, SecretAccessKey: keys.Secret, SessionToken: keys.Session},
		request, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "rds-db", Region, at)
	return scope[0], err == nil && hmac.Equal([]byte(signed), []byte("https://"+token))
}
