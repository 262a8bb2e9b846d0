package deploy

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"

	"github.com/cdc-outbox/cdc-outbox/internal/admin"
	"github.com/cdc-outbox/cdc-outbox/internal/await"
	"github.com/cdc-outbox/cdc-outbox/internal/config"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/child"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/kafkatest"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline"
)

// tenants runs tenants.sh on a server until stop, which returns the output.
func tenants(t *testing.T, server *pgtest.Server) (stop func() string) {
	t.Helper()
	if _, err := exec.LookPath("psql"); err != nil {
		t.Skip("there is no psql")
	}
	admin := must.Get(pgconn.ParseConfig(server.URL("postgres")))(t)
	said := filepath.Join(t.TempDir(), "said")
	output := must.Get(os.Create(said))(t)
	cmd := exec.Command("bash", "compose/tenants.sh")
	cmd.Env = append(os.Environ(), "PGHOST="+admin.Host, fmt.Sprintf("PGPORT=%d", admin.Port), "PGUSER="+admin.User, "PGPASSWORD="+admin.Password)
	cmd.Stdout, cmd.Stderr = output, output
	running := must.Get(child.Start(cmd))(t)
	stop = sync.OnceValue(func() string {
		must.OK(t, running.Stop(context.WithoutCancel(t.Context()), syscall.SIGTERM)) // in the midst of its work
		must.OK(t, output.Close())
		return read(t, said)
	})
	t.Cleanup(func() { stop() })
	return stop
}

// database is the tenant's of a pipeline.
func database(t *testing.T, p config.Pipeline) string {
	t.Helper()
	return strings.TrimPrefix(must.Get(url.Parse(p.Config.Source.URL.Reveal()))(t).Path, "/")
}

// Each pipeline of the fleet finds its tenant's table, publication and slot, and events come
// without end. A second start keeps them.
func TestComposeTenants(t *testing.T) {
	cfg := must.Get(config.Load(config.Options{File: "compose/fleet.yaml"}))(t)
	server := pgtest.Start(t)
	events := func(p config.Pipeline) (n int) {
		t.Helper()
		conn, err := pgx.Connect(t.Context(), server.URL(database(t, p)))
		if err != nil {
			return 0 // not yet
		}
		defer conn.Close(t.Context())
		const query = `SELECT count(*) FROM public.outbox
			WHERE EXISTS (SELECT FROM pg_publication_tables WHERE pubname = $1 AND tablename = 'outbox')
			AND EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = $2 AND database = current_database())`
		if conn.QueryRow(t.Context(), query, p.Config.Source.Publication, p.Config.Source.Slot).Scan(&n) != nil {
			return 0
		}
		return n
	}
	least := 1
	for range 2 {
		stop := tenants(t, server)
		for _, p := range cfg.Pipelines {
			await.Until(t, "events of "+p.Name, func() bool { return events(p) >= least })
		}
		if said := stop(); said != "" {
			t.Errorf("it says %s", said)
		}
		least = events(cfg.Pipelines[0]) + 1
	}
}

// The file of docker compose, with servers of the test: three members share the tenants'
// pipelines, the events of all arrive, and the others take over from a member that leaves.
func TestComposeFleet(t *testing.T) {
	server, broker := pgtest.Start(t), kafkatest.Start(t)
	server.Exec(t, "CREATE ROLE cdc LOGIN REPLICATION PASSWORD 'cdc'") // as init.sql does
	tenants(t, server)
	configured := func(member int) *config.Config {
		environ := []string{
			"CDC_OUTBOX_SINK_KAFKA_BROKERS=" + strings.Join(broker.Brokers, ","), "CDC_OUTBOX_HTTP_LISTEN=127.0.0.1:0",
			fmt.Sprintf("CDC_OUTBOX_FLEET_MEMBER=member-%d", member),
		}
		for _, p := range must.Get(config.Load(config.Options{File: "compose/fleet.yaml"}))(t).Pipelines {
			login := must.Get(url.Parse(server.URL(database(t, p))))(t)
			login.User = url.UserPassword("cdc", "cdc")
			environ = append(environ, "CDC_OUTBOX_PIPELINES_"+strings.ToUpper(p.Name)+"_SOURCE_URL="+login.String())
		}
		return must.Get(config.Load(config.Options{File: "compose/fleet.yaml", Environ: environ}))(t)
	}
	var stops []func()
	for member := range 3 {
		cfg := configured(member)
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		var running sync.WaitGroup
		running.Go(func() {
			if err := pipeline.Run(ctx, pipeline.Options{Config: cfg, Log: zap.NewNop(), Stdout: io.Discard}); err != nil {
				t.Errorf("member %d: %v", member, err)
			}
		})
		stops = append(stops, func() { cancel(); running.Wait() })
		t.Cleanup(stops[member])
	}
	shares := func(want ...int) func() bool {
		return func() bool {
			r, err := admin.Fleet(t.Context(), configured(0))
			if err != nil {
				return false // the members are coming together
			}
			var got []int
			for _, m := range r.Members {
				got = append(got, m.Pipelines)
			}
			return slices.Equal(got, want)
		}
	}
	topics := map[string]bool{}
	reader := broker.Client(t, kgo.ConsumeRegex(), kgo.ConsumeTopics(`^outbox\.event\.tenant_`), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.MetadataMinAge(time.Second), kgo.MetadataMaxAge(time.Second))
	await.Until(t, "an equal share for each member", shares(2, 2, 2))
	for len(topics) < 6 {
		reader.PollFetches(t.Context()).EachRecord(func(r *kgo.Record) { topics[r.Topic] = true })
	}
	stops[1]()
	await.Until(t, "the pipelines at the others", shares(3, 3))
}
