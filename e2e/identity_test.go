package e2e

import (
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/cloud"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

// TestE2ETokensOfSeconds has credentials and tokens of ten seconds in place of a
// password, for stream, checkpoint and polling, while connections are cut. Then
// the source of tokens is away beyond the last one's end: the connector waits,
// says for what, and goes on (failure mode 218).
func TestE2ETokensOfSeconds(t *testing.T) {
	const lifetime, identities = 10 * time.Second, 4
	for n, tt := range []struct {
		name, auth string
		use        func(*cloud.Cloud, *testing.T)
		source     string // in the log
		options    options
	}{
		{"IRSA", "aws_iam", (*cloud.Cloud).WebIdentity, "ask AWS STS", options{config: postgresCheckpoint}},
		{"Entra", "azure_entra", (*cloud.Cloud).WorkloadIdentity, "ask Microsoft Entra", options{config: postgresCheckpoint}},
		{"Google", "google_iam", (*cloud.Cloud).ServiceAccount, "metadata server", options{exactlyOnce: true}},
		{"Pod Identity, polled", "aws_iam", (*cloud.Cloud).PodIdentity, "container's source", options{polled: polledSequence}},
	} {
		if testing.Short() && n > 0 {
			break
		}
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, tt.options)
			clouds := cloud.New(t)
			tt.use(clouds, t)
			clouds.Live(lifetime, nil)
			front := clouds.Front(t, w.url)
			text := string(must.Get(os.ReadFile(w.config))(t))
			text = strings.Replace(text, "url: "+w.proxied(), "url: "+front.URL(t)+"\n  auth: "+tt.auth, 1)
			must.OK(t, os.WriteFile(w.config, []byte(text), 0o600))

			cmd := exec.Command(binary, "run", "-c", w.config)
			cmd.Env = append(environment(t), clouds.Environ()...)
			c := launch(t, cmd)
			c.awaitLog(w.started())
			load := w.write(seed(t), 5*time.Millisecond, 0)
			await.Until(t, "further tokens", func() bool {
				load.await(50)
				c.running()
				front.Cut()
				_, _, used := front.Seen()
				return used >= identities
			})
			clouds.Rotate(t)
			clouds.Answer(http.StatusServiceUnavailable)
			await.Until(t, "the cause in the log", func() bool {
				load.await(10)
				c.running()
				front.Cut()
				_, logged := c.lastLog(tt.source)
				return logged
			})
			clouds.Answer(0)
			load.await(50)
			h, report := w.finish(load, c)
			if !w.polled {
				w.wantDrained(h)
				w.wantNoneAgain(report, "though the connector had them")
			}
			logins, refused, used := front.Seen()
			t.Logf("%d logins by %d tokens, %d refused, %d events", logins, used, refused, len(h.Records))
		})
	}
}

const postgresCheckpoint = "checkpoint:\n  store: postgres\n"
