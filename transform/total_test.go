package transform_test

import (
	"strconv"
	"testing"
)

// The total is the last header, once, however often it is counted.
func TestTotalOfATransaction(t *testing.T) {
	ev := route(t, newRouter(t, nil), headersRow([]byte(`{"a": "1"}`)))
	before := len(ev.Record.Headers)
	for n := range 3 {
		ev.SetTotal([]byte(strconv.Itoa(n)))
		headers := ev.Record.Headers
		if last := headers[len(headers)-1]; len(headers) != before+1 || last.Key != "cdc-tx-total" || string(last.Value) != strconv.Itoa(n) {
			t.Errorf("headers %q, want %d and cdc-tx-total=%d", headers, before, n)
		}
	}
}
