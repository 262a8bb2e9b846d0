package stream

import (
	"strconv"
	"strings"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/lab/pgtest"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// A database in SQL_ASCII takes any byte. A row with an event type, for a header, other
// than UTF-8 is a bad event, and the only, in the stream as in a snapshot.
func TestBytesOfNoEncoding(t *testing.T) {
	server := pgtest.Shared(t)
	for i, snapshot := range []bool{false, true} {
		name := "no_encoding_" + strconv.Itoa(i)
		server.Exec(t, `CREATE DATABASE `+name+` ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'`)
		d := newDatabase(t, server.URL(name))
		d.opts.OnBadEvent = transform.BadEventSkip
		d.opts.Snapshot = snapshot
		if !snapshot {
			d.run().streams().stop()
		}
		d.insert(2, 1)
		d.exec(`INSERT INTO outbox VALUES ('bad', 'order', 'o', E'Placed \xff', '{}')`)
		d.insert(2, 1)
		in := d.run().streams()
		d.arrive()
		d.wantOnce()
		in.stop()
		in.metrics.locked(func() {
			if len(in.metrics.skipped) != 1 {
				t.Errorf("snapshot %v: skipped %v, want one event", snapshot, in.metrics.skipped)
			}
		})
	}
}

// In other encodings some characters have no equivalent in UTF-8. In a relevant column
// of an outbox row, such a character makes a bad event, and the only, in the stream as
// in a snapshot; rows of other tables do not matter. All others are converted.
func TestCharactersWithoutEquivalent(t *testing.T) {
	server := pgtest.Shared(t)
	for encoding, chars := range map[string]struct{ stored, utf8, without string }{
		"WIN1252":    {`caf\xe9 \x80`, "café €", `\x81`},
		"ISO_8859_8": {`\xf9\xec`, "של", `\xa1`},
		"EUC_JP":     {`\xb0\xa1 \x8e\xb1 \x8f\xb0\xa1`, "亜 ｱ 丂", `\xad\xfe`},
	} {
		for _, snapshot := range []bool{false, true} {
			name := "gaps_" + strings.ToLower(encoding) + "_" + strconv.FormatBool(snapshot)
			server.Exec(t, `CREATE DATABASE `+name+` ENCODING '`+encoding+`' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'`)
			d := newDatabase(t, server.URL(name))
			d.exec("CREATE TABLE other (t text)")
			d.opts.OnBadEvent = transform.BadEventSkip
			d.opts.Snapshot = snapshot
			if !snapshot {
				d.run().streams().stop()
				d.exec("ALTER PUBLICATION cdc_outbox ADD TABLE other")
			}
			d.exec("INSERT INTO other VALUES (E'" + chars.without + "')")
			d.exec("INSERT INTO outbox VALUES ('good', 'order', E'" + chars.stored + "', 'Placed', E'{\"at\": \"" + chars.stored + "\"}')")
			d.exec("INSERT INTO outbox VALUES ('bad', 'order', 'o', 'Placed', E'{\"at\": \"" + chars.without + "\"}')")
			d.ids = append(d.ids, "good")
			d.insert(2, 1)
			in := d.run().streams()
			d.arrive()
			d.wantOnce()
			in.stop()
			if got := d.topic.all()[0]; got.key != chars.utf8 || !strings.Contains(got.value, chars.utf8) {
				t.Errorf("%s, snapshot %v: key %q, value %q, want %q in them", encoding, snapshot, got.key, got.value, chars.utf8)
			}
			in.metrics.locked(func() {
				if len(in.metrics.skipped) != 1 || in.metrics.skipped[0] != transform.ReasonInvalidUTF8 {
					t.Errorf("%s, snapshot %v: skipped %v, want one event", encoding, snapshot, in.metrics.skipped)
				}
			})
		}
	}
}
