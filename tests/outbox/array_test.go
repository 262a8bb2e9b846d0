package outbox_test

import (
	"bytes"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-outbox/cdc-outbox/outbox"
)

// FuzzArraysReadBack has pgx read the arrays a statement is given.
func FuzzArraysReadBack(f *testing.F) {
	for _, text := range awkward {
		f.Add(text, []byte(text))
	}
	f.Add("a", []byte{0, 0xff, '\\'})
	types := pgtype.NewMap()
	f.Fuzz(func(t *testing.T, text string, payload []byte) {
		w := newWriter(t, outbox.Options{Payload: outbox.Bytes})
		e := order(text)
		e.AggregateType, e.Payload = text, append([]byte{}, payload...)
		tx := &recorder{}
		if _, err := w.Write(t.Context(), outbox.SQL(tx), e, order("x"), e); err != nil {
			t.Skip("invalid: ", err)
		}
		var texts []string
		if err := types.Scan(pgtype.TextArrayOID, pgtype.TextFormatCode, []byte(tx.args[0][1].(string)), &texts); err != nil {
			t.Fatal(err)
		}
		if len(texts) != 3 || texts[0] != text || texts[1] != "order" || texts[2] != text {
			t.Errorf("texts %q", texts)
		}
		var payloads [][]byte
		if err := types.Scan(pgtype.ByteaArrayOID, pgtype.TextFormatCode, []byte(tx.args[0][4].(string)), &payloads); err != nil {
			t.Fatal(err)
		}
		if len(payloads) != 3 || !bytes.Equal(payloads[0], payload) || !bytes.Equal(payloads[2], payload) {
			t.Errorf("payloads %q", payloads)
		}
	})
}
