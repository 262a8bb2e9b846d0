package pg

import (
	"math"
	"testing"
)

func TestAppendLSN(t *testing.T) {
	for _, lsn := range []LSN{0, 1, 0xABCDEF, 0x16_B374D848, 0xA0_0000000F, math.MaxUint32, math.MaxUint32 + 1, math.MaxUint64} {
		if got, want := string(AppendLSN([]byte("az"), lsn)), "az"+lsn.String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
