package checker

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The ledger and a reader keep the same of a long value, and something else of another.
func TestKept(t *testing.T) {
	long := strings.Repeat("x", longValue)
	for name, value := range map[string]string{"short": "x", "just not long": long[1:], "long": long, "longer": long + "x"} {
		t.Run(name, func(t *testing.T) {
			var l Ledger
			l.Add(Transaction{Events: []Event{{Value: value}}})
			noted := l.Transactions()[0].Events[0].Value
			if read := RecordOf(&kgo.Record{Value: []byte(value)}).Value; read != noted {
				t.Errorf("the reader keeps %.200q, the ledger %.200q", read, noted)
			}
			if len(noted) > longValue || len(value) < longValue && noted != value {
				t.Errorf("%d bytes of %d are kept: %.200q", len(noted), len(value), noted)
			}
			if altered := value[1:] + "y"; kept(altered) == noted {
				t.Errorf("an altered value is kept alike: %.200q", noted)
			}
		})
	}
}
