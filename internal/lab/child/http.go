package child

import (
	"context"
	"net/http"
)

// AnswersHTTP returns nil if a server at the address answers, be it to refuse: an unsigned
// request is all it takes.
func AnswersHTTP(ctx context.Context, address string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address, nil)
	if err != nil {
		return err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
