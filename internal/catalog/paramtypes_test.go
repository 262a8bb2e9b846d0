package catalog

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/cdc-outbox/cdc-outbox/internal/pg"
)

// Releases are built with the tag nopgxregisterdefaulttypes. Without it, pgx knows
// these types anyway, and the test proves nothing.
func TestParametersHaveATypeInARelease(t *testing.T) {
	types := pgtype.NewMap()
	registerTypes(types)
	now, text := time.Now(), "x"
	for _, value := range []any{
		true, int16(1), int32(1), int64(1), 1, uint16(1), uint32(1), uint64(1), uint(1), float32(1), 1.0,
		"x", []byte("x"), json.RawMessage("{}"), now, time.Second, pg.LSN(1),
		[]string{"x"}, []int32{1}, []int64{1}, []uint32{1}, []bool{true}, [][]byte{{1}}, []time.Time{now},
		&text, &now, []*string{&text, nil},
	} {
		for _, format := range []int16{pgtype.TextFormatCode, pgtype.BinaryFormatCode} {
			if _, err := types.Encode(0, format, value, nil); err != nil {
				t.Errorf("%T: %v", value, err)
			}
		}
	}
}
