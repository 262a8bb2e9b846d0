package identity

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/cloud"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is moved by hand.
type clock struct{ at time.Time }

func newClock() *clock               { return &clock{time.Now()} }
func (c *clock) now() time.Time      { return c.at }
func (c *clock) add(d time.Duration) { c.at = c.at.Add(d) }

// Each of Amazon's sources gives credentials, and new ones before the end.
func TestAWSSources(t *testing.T) {
	for name, use := range map[string]func(*cloud.Cloud, *testing.T){
		"web identity": (*cloud.Cloud).WebIdentity, "pod identity": (*cloud.Cloud).PodIdentity, "instance": (*cloud.Cloud).Instance,
	} {
		t.Run(name, func(t *testing.T) {
			c, clock := cloud.New(t), newClock()
			use(c, t)
			c.Live(time.Minute, clock.now)
			k := newKept(AWSSource{}.asker(), clock.now)
			first := must.Get(k.get(t.Context(), environment(awsVariables)))(t)
			asked := c.Asked()
			clock.add(29 * time.Second)
			if again := must.Get(k.get(t.Context(), environment(awsVariables)))(t); again != first || c.Asked() != asked {
				t.Errorf("%d requests instead of %d before half of the minute", c.Asked(), asked)
			}
			c.Rotate(t) // the file's token, as Kubernetes does
			clock.add(2 * time.Second)
			second := must.Get(k.get(t.Context(), environment(awsVariables)))(t)
			issued, ok := c.Keys(second.AccessKey)
			if second == first || !ok || issued.Secret != second.SecretKey || issued.Session != second.SessionToken || !issued.Ends.Equal(second.Ends) {
				t.Errorf("got %+v, issued %+v", second, issued)
			}
		})
	}
}

// The variables prevail, and are read at each question.
func TestAWSVariables(t *testing.T) {
	c := cloud.New(t)
	c.WebIdentity(t)
	t.Setenv("AWS_SECRET_ACCESS_KEY", "s")
	for _, key := range []string{"A", "B"} {
		t.Setenv("AWS_ACCESS_KEY_ID", key)
		if got := must.Get(AWS(t.Context()))(t); got.AccessKey != key || got.SecretKey != "s" || !got.Ends.IsZero() {
			t.Errorf("%+v", got)
		}
	}
	if c.Asked() != 0 {
		t.Error("STS was asked")
	}
}

func TestAWSProfile(t *testing.T) {
	cloud.New(t)
	home := must.Get(os.UserHomeDir())(t)
	must.OK(t, os.MkdirAll(filepath.Join(home, ".aws"), 0o700))
	must.OK(t, os.WriteFile(filepath.Join(home, ".aws", "credentials"), []byte("[default]\naws_access_key_id = A\naws_secret_access_key = s\n"), 0o600))
	if got := must.Get(AWS(t.Context()))(t); got.AccessKey != "A" || got.SecretKey != "s" {
		t.Errorf("%+v", got)
	}
}

// A credential_process without an end holds nobody for longer than the question's time, and is
// not started again beside itself.
func TestAWSProcessHangs(t *testing.T) {
	cloud.New(t)
	dir := t.TempDir()
	end, runs := filepath.Join(dir, "end"), filepath.Join(dir, "runs")
	script := filepath.Join(dir, "process")
	must.OK(t, os.WriteFile(script, []byte(`#!/bin/sh
echo run >>"$1"
while [ ! -e "$2" ]; do sleep 0.02; done
echo '{"Version": 1, "AccessKeyId": "A", "SecretAccessKey": "s", "Expiration": "2999-01-01T00:00:00Z"}'
`), 0o700))
	file := filepath.Join(dir, "credentials")
	must.OK(t, os.WriteFile(file, []byte("[p]\ncredential_process = "+script+" "+runs+" "+end+"\n"), 0o600))
	t.Cleanup(func() { must.OK(t, os.WriteFile(end, nil, 0o600)) })
	clock := newClock()
	k := newKept(AWSSource{File: true, Path: file, Profile: "p"}.asker(), clock.now)
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if _, err := k.get(ctx, ""); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
		cancel()
	}
	must.OK(t, os.WriteFile(end, nil, 0o600))
	if got := must.Get(k.get(t.Context(), ""))(t); got.AccessKey != "A" {
		t.Errorf("%+v", got)
	}
	if text := string(must.Get(os.ReadFile(runs))(t)); text != "run\n" {
		t.Errorf("runs: %q", text)
	}
}

// A source named by the configuration is asked although others come first.
func TestAWSNamedSources(t *testing.T) {
	c := cloud.New(t)
	c.WebIdentity(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "variable")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "s")
	file := filepath.Join(t.TempDir(), "credentials")
	for _, key := range []string{"A", "B"} { // the file changes
		must.OK(t, os.WriteFile(file, []byte("[p]\naws_access_key_id = "+key+"\naws_secret_access_key = s\n"), 0o600))
		if got := must.Get(AWSSource{File: true, Path: file, Profile: "p"}.Credentials(t.Context()))(t); got.AccessKey != key {
			t.Errorf("%+v", got)
		}
	}
	if got := must.Get(AWSSource{Role: true}.Credentials(t.Context()))(t); got.SessionToken == "" {
		t.Errorf("%+v", got)
	}
	_, err := AWSSource{File: true, Path: file, Profile: "q"}.Credentials(t.Context())
	must.Contain(t, err.Error(), "profile q")
	must.Contain(t, failure.RemedyOf(err), file)
}

// While the source is away, the credentials serve until the end.
func TestAWSSourceIsAway(t *testing.T) {
	c, clock := cloud.New(t), newClock()
	c.WebIdentity(t)
	c.Live(time.Minute, clock.now)
	k := newKept(AWSSource{}.asker(), clock.now)
	first := must.Get(k.get(t.Context(), ""))(t)
	c.Answer(http.StatusServiceUnavailable)
	clock.add(45 * time.Second)
	if again := must.Get(k.get(t.Context(), ""))(t); again != first {
		t.Error("the credentials were given up before their end")
	}
	clock.add(16 * time.Second)
	asked := c.Asked()
	for range 3 {
		_, err := k.get(t.Context(), "")
		if err == nil || failure.ClassOf(err) != failure.Transient {
			t.Fatalf("error = %v", err)
		}
		must.Contain(t, err.Error(), "AWS STS", cloud.RoleARN)
		must.Contain(t, failure.RemedyOf(err), "AWS_ROLE_ARN")
	}
	if c.Asked() != asked+1 {
		t.Errorf("%d questions within a second, want one", c.Asked()-asked)
	}
	c.Answer(0)
	clock.add(failureCounts)
	if got := must.Get(k.get(t.Context(), ""))(t); got == first {
		t.Error("the old credentials")
	}
}

func TestAWSRefusals(t *testing.T) {
	for name, tt := range map[string]struct {
		set  func(*testing.T, *cloud.Cloud)
		text string
	}{
		"a role of others": {func(t *testing.T, c *cloud.Cloud) { c.WebIdentity(t); t.Setenv("AWS_ROLE_ARN", "arn:other") }, "AccessDenied: Not authorized"},
		"a token of others": {func(t *testing.T, c *cloud.Cloud) {
			c.WebIdentity(t)
			other := filepath.Join(t.TempDir(), "token")
			must.OK(t, os.WriteFile(other, []byte("secret-of-others"), 0o600))
			t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", other)
		}, "InvalidIdentityToken"},
		"no file": {func(t *testing.T, c *cloud.Cloud) {
			c.WebIdentity(t)
			t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/nowhere")
		}, "/nowhere"},
		"no agent": {func(t *testing.T, _ *cloud.Cloud) {
			t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1:1/v1?secret")
		}, "connection refused"},
		"no metadata": {func(t *testing.T, _ *cloud.Cloud) {
			t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1")
		}, "metadata service"},
	} {
		t.Run(name, func(t *testing.T) {
			tt.set(t, cloud.New(t))
			_, err := AWS(t.Context())
			if err == nil || failure.RemedyOf(err) == "" {
				t.Fatalf("error = %v, remedy %q", err, failure.RemedyOf(err))
			}
			must.Contain(t, err.Error(), tt.text)
			for _, secret := range []string{"secret", "workload-"} {
				if got := err.Error(); strings.Contains(got, secret) {
					t.Errorf("shows %q: %s", secret, got)
				}
			}
		})
	}
}
