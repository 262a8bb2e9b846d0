package pipeline

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

// Useless files of credentials show before any connection needs them: the pipeline is ready, and
// a single line tells of each cause, and of the end.
func TestUselessCredentialsShow(t *testing.T) {
	credentialsPace = 20 * time.Millisecond
	t.Cleanup(func() { credentialsPace = 10 * time.Second })
	db := pgtest.Shared(t).NewDatabase(t)
	pgtest.Exec(t, db, polledOutbox)
	broker := kafkatest.Start(t, kafkatest.Logins("cdc"))
	broker.Allow(t, "cdc", kadm.NewACLs().Topics("outbox.event.").ResourcePatternType(kadm.ACLPatternPrefixed), kadm.OpAll)
	file := filepath.Join(t.TempDir(), "password")
	write := func(text string) { must.OK(t, os.WriteFile(file, []byte(text), 0o600)) }
	write(kafkatest.Password)
	cfg := kafkaConfig(t, db, "credentials", broker.Brokers...)
	cfg.Sink.Kafka.SASL = sink.SASL{Mechanism: "PLAIN", Username: "cdc", Password: kafkatest.Password,
		Written: setting.Files{"password": {{Path: file, Shown: "${DIR}/password"}}}}
	cfg.Source.Mode = config.ModeWAL
	c := start(t, cfg).active(t)
	await.Until(t, "readiness", c.ready)

	const line, over = "a file of credentials cannot be used; connections have its former content", "all files of credentials can be used again"
	told := func() int { return c.logs.FilterMessage(line).Len() }
	shows := func(text string, lines int) {
		t.Helper()
		await.Until(t, text, func() bool { return strings.Contains(body(c.base+"/status"), text) && told() == lines })
		await.Until(t, "the metric", c.shows("cdc_outbox_credential_files_unusable 1"))
		if code(c.base+"/readyz") != http.StatusOK {
			t.Errorf("/readyz = %s", body(c.base+"/readyz"))
		}
	}
	write("")
	shows("sink.kafka.sasl.password is empty", 1)
	must.OK(t, os.Remove(file))
	shows("${DIR}/password, which cannot be read", 2)
	if remedy, _ := c.logs.FilterMessage(line).All()[1].ContextMap()["remedy"].(string); !strings.Contains(remedy, "create the file") {
		t.Errorf("the remedy is %q", remedy)
	}
	must.OK(t, os.WriteFile(file+".new", []byte("of tomorrow"), 0o600))
	must.OK(t, os.Rename(file+".new", file))
	await.Until(t, "the end", func() bool { return c.logs.FilterMessage(over).Len() == 1 })
	await.Until(t, "the metric", c.shows("cdc_outbox_credential_files_unusable 0"))
	if n := told(); n != 2 {
		t.Errorf("%d lines, want one for each cause", n)
	}
}
