package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

// mostAnswer bounds an answer; schemas of more are not accepted by registries.
const mostAnswer = 16 << 20

// client asks the servers of a registry, beginning with the last to answer.
type client struct {
	timeout time.Duration
	files   setting.Files // of the login
	http    *http.Client
	servers []*sr.Client
	first   atomic.Int32
}

func newClient(o Server) (*client, error) {
	if err := o.TLS.Check(tlsPrefix); err != nil {
		return nil, err
	}
	transport := o.TLS.Transport(tlsPrefix)
	transport.IdleConnTimeout = 90 * time.Second
	c := &client{timeout: o.Timeout, files: o.Written, http: &http.Client{Transport: bounded{transport}}}
	opts := []sr.ClientOpt{sr.HTTPClient(c.http), sr.UserAgent("cdc-outbox"), sr.PreReq(o.login)}
	for _, url := range o.URLs {
		server, err := sr.NewClient(append(opts[:len(opts):len(opts)], sr.URLs(url))...)
		if err != nil {
			return nil, err
		}
		c.servers = append(c.servers, server)
	}
	return c, nil
}

// login adds the present login to a request.
func (s *Server) login(r *http.Request) error {
	switch token := s.Written.Secret("token", s.Token); {
	case token != "":
		r.Header.Set("Authorization", "Bearer "+token.Reveal())
	case s.Username != "":
		r.SetBasicAuth(s.Written.Present("username", s.Username), s.Written.Secret("password", s.Password).Reveal())
	}
	return nil
}

// WithoutFiles is s without the contents of its files.
func (s Server) WithoutFiles() Server {
	for name := range s.Written {
		switch name {
		case "username":
			s.Username = ""
		case "password":
			s.Password = ""
		case "token":
			s.Token = ""
		}
	}
	return s
}

func (c *client) close() { c.http.CloseIdleConnections() }

// bounded bounds the answers' bodies.
type bounded struct{ *http.Transport }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.Transport.RoundTrip(req)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, mostAnswer)
	}
	return resp, err
}

// ask asks the servers in turn, each within the timeout, up to the first answer.
func (c *client) ask(ctx context.Context, question func(context.Context, *sr.Client) error) (err error) {
	first := int(c.first.Load())
	for i := range c.servers {
		n := (first + i) % len(c.servers)
		limited, cancel := context.WithTimeout(ctx, c.timeout)
		err = question(limited, c.servers[n])
		if err != nil && ctx.Err() == nil && limited.Err() != nil {
			err = fmt.Errorf("no answer within %s", c.timeout)
		}
		cancel()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if status := statusOf(err); err == nil || status != 0 && status < 500 && status != http.StatusTooManyRequests {
			c.first.Store(int32(n))
			break
		}
	}
	err = explained(err)
	if status := statusOfRefusal(err); len(c.files) > 0 && (status == http.StatusUnauthorized || status == http.StatusForbidden) {
		return &failure.Error{Remedy: c.files.Rotation() + "; or " + failure.RemedyOf(err), Err: err}
	}
	return err
}

// statusOf is the HTTP status of a refusal, or 0.
func statusOf(err error) int {
	if answer, ok := errors.AsType[*sr.ResponseError](err); ok {
		return answer.StatusCode
	}
	return 0
}

// refusal is a registry's refusal. The registry is well, and the schema or a right is
// not there.
type refusal struct {
	status int
	text   string
	ours   bool // in the registry's form, with a code
}

func (r *refusal) Error() string { return r.text }

// mostText bounds the registry's own words in an error.
const mostText = 300

// statusOfRefusal is the status of an explained refusal, 0 of another error.
func statusOfRefusal(err error) int {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.status
	}
	return 0
}

// explained is the error of a question with a remedy.
func explained(err error) error {
	if err == nil {
		return nil
	}
	answer, refused := errors.AsType[*sr.ResponseError](err)
	if !refused {
		return &failure.Error{Remedy: "start the schema registry, or correct encoding.registry.urls", Err: fmt.Errorf("ask the schema registry: %w", err)}
	}
	code := ""
	if answer.ErrorCode != 0 && answer.ErrorCode != answer.StatusCode {
		code = fmt.Sprintf(" (%d)", answer.ErrorCode)
	}
	said := strings.Join(strings.Fields(strings.ToValidUTF8(answer.Error(), "·")), " ")
	if len(said) > mostText {
		said = strings.ToValidUTF8(said[:mostText], "") + "…"
	}
	r := &refusal{ours: answer.ErrorCode != 0, status: answer.StatusCode, text: fmt.Sprintf("the schema registry answers %d%s to %s %s: %s", answer.StatusCode, code, answer.Method, answer.URL, said)}
	return &failure.Error{Remedy: remedyOf(answer.StatusCode), Err: r}
}

func remedyOf(status int) string {
	switch {
	case status == http.StatusUnauthorized:
		return "correct encoding.registry.username and password, or token"
	case status == http.StatusForbidden:
		return "give the user of encoding.registry the right to read the subject, and with register: true to write it"
	case status == http.StatusTooManyRequests:
		return "raise the registry's limit of requests"
	case status >= http.StatusInternalServerError:
		return "look at the schema registry's log"
	}
	return "correct encoding.registry.urls, or register the schema"
}

// ofSchema reports whether the registry is well, and lacks or refuses the schema. A 404 without
// the registry's code is of another server, as of a proxy without the registry.
func ofSchema(err error) bool {
	status := statusOfRefusal(err)
	return notFound(err) || status == http.StatusConflict || status == http.StatusUnprocessableEntity
}

// notFound reports whether the registry has no such thing.
func notFound(err error) bool {
	r, ok := errors.AsType[*refusal](err)
	return ok && r.status == http.StatusNotFound && r.ours
}

// ping asks a question without rights.
func (c *client) ping(ctx context.Context) error {
	err := c.ask(ctx, func(ctx context.Context, server *sr.Client) error {
		_, err := server.SupportedTypes(ctx)
		return err
	})
	if statusOfRefusal(err) == http.StatusNotFound {
		return nil // an old registry does not know the question
	}
	return err
}

// exists reports whether the registry has a schema of the number.
func (c *client) exists(ctx context.Context, id uint32) (found bool, err error) {
	err = c.ask(ctx, func(ctx context.Context, server *sr.Client) error {
		_, err := server.SchemaByID(ctx, int(id))
		return err
	})
	if notFound(err) {
		return false, nil
	}
	return err == nil, err
}

// version asks for a version of a subject; -1: the latest.
func (c *client) version(ctx context.Context, subject string, version int) (found sr.SubjectSchema, err error) {
	err = c.ask(ctx, func(ctx context.Context, server *sr.Client) (err error) {
		found, err = server.SchemaByVersion(ctx, subject, version)
		return err
	})
	return found, err
}

// mostReferred bounds the schemas behind the references of a schema.
const mostReferred = 200

// referred fetches the schemas behind the references, in the order of dependence.
func (c *client) referred(ctx context.Context, refs []sr.SchemaReference) (all []reference, err error) {
	known := make(map[sr.SchemaReference]bool)
	var add func(refs []sr.SchemaReference) error
	add = func(refs []sr.SchemaReference) error {
		for _, ref := range refs {
			if known[ref] {
				continue
			}
			if known[ref] = true; len(known) > mostReferred {
				return fmt.Errorf("the schema refers to more than %d others", mostReferred)
			}
			other, err := c.version(ctx, ref.Subject, ref.Version)
			if err != nil {
				return err
			}
			if err := add(other.References); err != nil {
				return err
			}
			all = append(all, reference{ref.Name, other.Schema.Schema})
		}
		return nil
	}
	return all, add(refs)
}
