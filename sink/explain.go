package sink

import "github.com/cdc-outbox/cdc-outbox/internal/failure"

// Explain gives the error of a client made with ClientOpts its failure.Class
// and remedy where a broker refused it for good: login and certificates. Other
// errors are returned as they are.
func Explain(err error) error {
	if remedy, ok := refused(err); ok {
		return failure.Configf(remedy, "%w", err)
	}
	return err
}
