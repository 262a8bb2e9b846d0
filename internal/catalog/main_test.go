package catalog

import (
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }
