package sink

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/zap"
)

// The brokers of a cluster that is moved again and again have new addresses each time.
func TestAddressesThatBrokersNoLongerHaveAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newConnections(Options{}, zap.NewNop(), unobserved{})
		for n := range 1000 {
			broker := kgo.BrokerMetadata{NodeID: 1, Host: fmt.Sprintf("10.0.%d.%d", n/250, n%250), Port: 9092}
			c.OnBrokerConnect(broker, 0, nil, errors.New("no route to host"))
			<-time.After(time.Minute)
		}
		if most := int(outageForgotten/time.Minute) + 1; len(c.outages) > most {
			t.Errorf("%d addresses are known, want at most %d", len(c.outages), most)
		}
	})
}
