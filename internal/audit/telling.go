package audit

import (
	"fmt"
	"time"
)

// TellEvery is the time between two lines about the progress. Tests shorten it.
var TellEvery = 10 * time.Second

// Estimate says how long the rest takes at the pace until now: ", about 2m0s left"; ""
// without a pace or a rest.
func Estimate(since time.Duration, done, ahead int64) string {
	if done <= 0 || ahead <= 0 {
		return ""
	}
	left := time.Duration(float64(since) / float64(done) * float64(ahead))
	return fmt.Sprintf(", about %s left", left.Round(time.Second))
}

// Telling calls tell each TellEvery, on a goroutine of its own, until stop is called. stop
// joins the goroutine.
func Telling(tell func()) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticks := time.NewTicker(TellEvery)
		defer ticks.Stop()
		for {
			select {
			case <-end:
				return
			case <-ticks.C:
				tell()
			}
		}
	}()
	return func() {
		close(end)
		<-ended
	}
}
