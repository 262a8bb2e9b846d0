package debezium

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/child"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
)

// properties are options of Debezium or Kafka Connect.
type properties map[string]string

// request is the input of Reference.java.
type request struct {
	Connector properties     `json:"connector"`
	End       string         `json:"end"` // a table whose first row ends the run
	Sets      map[string]set `json:"sets"`
}

// set are the options for records, of the transformation and the converters.
type set struct {
	Router properties `json:"router"`
	Key    properties `json:"key"`
	Value  properties `json:"value"`
}

var (
	stringConverter = properties{"class": "org.apache.kafka.connect.storage.StringConverter"}
	jsonConverter   = properties{"class": "org.apache.kafka.connect.json.JsonConverter", "schemas.enable": "false"}
	bytesConverter  = properties{"class": "io.debezium.converters.BinaryDataConverter"}
)

// record is a record of Debezium's, or the reason against it.
type record struct {
	Set, Table, Row string
	Topic           string
	Timestamp       int64
	Partition       *int32
	Headers         [][2]*string // values in base64
	Key, Value      *string      // in base64
	Error           string
}

// connection are the properties for a database, a slot and a publication.
func connection(t *testing.T, url, slot, publication string) properties {
	t.Helper()
	c := must.Get(pgx.ParseConfig(url))(t)
	return properties{
		"name": slot, "connector.class": "io.debezium.connector.postgresql.PostgresConnector", "task.id": "0", "topic.prefix": "server",
		"database.hostname": c.Host, "database.port": strconv.Itoa(int(c.Port)), "database.dbname": c.Database,
		"database.user": c.User, "database.password": c.Password,
		"plugin.name": "pgoutput", "slot.name": slot, "publication.name": publication, "publication.autocreate.mode": "disabled",
		"snapshot.mode": "no_data", "poll.interval.ms": "10",
	}
}

// missing is the script's exit code where Java or Maven are not installed.
const missing = 3

// run returns what Debezium makes of the slot's log, up to the end. Without Java or
// Maven the test is skipped.
func (r request) run(t *testing.T) []record {
	t.Helper()
	path := filepath.Join(t.TempDir(), "request.json")
	must.OK(t, os.WriteFile(path, must.Get(json.Marshal(r))(t), 0o600))
	script := must.Get(child.Script("debezium.sh"))(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, script, "route", "Reference.java", path)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == missing {
		t.Skipf("no Debezium to be had: %s", stderr.String())
	}
	if err != nil {
		t.Fatalf("Debezium: %v\n%s", err, stderr.String())
	}
	var records []record
	for line := range bytes.Lines(out) {
		var rec record
		must.OK(t, json.Unmarshal(line, &rec))
		records = append(records, rec)
	}
	if len(records) == 0 {
		t.Fatalf("Debezium made no records\n%s", stderr.String())
	}
	return records
}

func TestMain(m *testing.M) { pgtest.Main(m) }
