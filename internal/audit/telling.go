package audit

import "time"

// TellEvery is the time between two lines about the progress.
const TellEvery = 10 * time.Second

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
