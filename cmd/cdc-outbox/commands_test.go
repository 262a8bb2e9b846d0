package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/internal/pipeline"
)

// A remedy's command reads the file that the failed command has read, in the
// last line of a log in JSON, too, and is about the same pipeline.
func TestRemediesCanBeTypedAsTheyAre(t *testing.T) {
	db := pgtest.Shared(t).NewDatabase(t)
	file := filepath.Join(t.TempDir(), "outbox.yaml")
	section := func(name string) string {
		return fmt.Sprintf("  %s: {source: {url: '%s', slot: typed_%[1]s, publication: %[1]s, tables: [%[1]s]}, sink: {stdout: {}}, checkpoint: {store: none}}\n", name, db)
	}
	must.OK(t, os.WriteFile(file, []byte("pipelines:\n"+section("orders")+section("billing")), 0o600))
	type result struct {
		code      int
		out, errs string
	}
	do := func(p *program, args ...string) result {
		var out, errs bytes.Buffer
		p.stdout, p.stderr = &out, &errs
		code := p.run(t.Context(), append(args, "-c", file))
		return result{code, out.String(), errs.String()}
	}
	if got := do(&program{}, "setup"); got.code != 0 {
		t.Fatalf("setup: %+v", got)
	}
	t.Cleanup(func() { do(&program{}, "teardown", "--yes") })

	if got := do(&program{}, "teardown", "--pipeline", "orders", "--set", "log.level=warn"); got.code != 2 || !strings.Contains(got.errs, "remedy: repeat it with --yes\n") {
		t.Errorf("%+v: its remedy has other flags than were typed", got)
	}
	pgtest.Exec(t, db, `DROP PUBLICATION orders`)
	want := "cdc-outbox setup -c " + file + " --pipeline orders --accept-gap`"
	if got := do(&program{}, "check"); !strings.Contains(got.out, want) {
		t.Errorf("%+v lacks %s", got, want)
	}
	if got := do(&program{}, "check", "--json"); !strings.Contains(got.out, want) {
		t.Errorf("%+v lacks %s", got, want)
	}
	want = "cdc-outbox setup -c " + file + " --set log.level=warn --set http.token=… --pipeline orders --accept-gap`"
	if got := do(&program{}, "check", "--set", "log.level=warn", "--set", "http.token=0123456789abcdef"); !strings.Contains(got.out, want) {
		t.Errorf("%+v lacks %s", got, want)
	}
	lost := &program{connect: func(context.Context, pipeline.Options) error {
		return failure.Lossf("cdc-outbox setup --accept-gap --yes", "lost")
	}}
	want = "cdc-outbox setup -c " + file + " --accept-gap --yes"
	if got := do(lost, "run"); !strings.Contains(got.errs, `"remedy":"`+want+`"`) {
		t.Errorf("%+v lacks %s", got, want)
	}
}
