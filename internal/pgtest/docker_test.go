package pgtest

import (
	"archive/tar"
	"io"
	"testing"

	"go.uber.org/goleak"

	"github.com/cdc-outbox/cdc-outbox/internal/container"
	"github.com/cdc-outbox/cdc-outbox/internal/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A standby in a container finds its primary by the name in their network, at the port
// in there: the published port is one of this machine.
func TestAPeerInAContainerHasAName(t *testing.T) {
	o := options{}
	in(nil, "primary")(&o)
	s := &Server{server: contained{&container.Container{}, "pw", o.name}}
	if got, want := s.conninfo(t), "host=primary port=5432 user=postgres password=pw dbname=postgres"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestAScriptIsAnArchiveOfOneFile(t *testing.T) {
	r := tar.NewReader(must.Get(tarOf("before.sh", "touch x"))(t))
	header := must.Get(r.Next())(t)
	content := must.Get(io.ReadAll(r))(t)
	if _, err := r.Next(); header.Name != "before.sh" || string(content) != "touch x" || err != io.EOF {
		t.Errorf("%s: %q, then %v", header.Name, content, err)
	}
}
