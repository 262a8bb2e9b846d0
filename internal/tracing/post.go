package tracing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	collectorpb "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
)

// mostAnswer bounds the part of an answer that is read.
const mostAnswer = 64 << 10

// collector is the endpoint.
type collector struct {
	client *http.Client
	url    string
	with   map[string]string // headers
}

func newCollector(o Options) (*collector, error) {
	with, err := headers(o.Headers.Reveal())
	if err != nil {
		return nil, err
	}
	transport := o.TLS.Transport(tlsPrefix)
	transport.IdleConnTimeout = 30 * time.Second
	client := &http.Client{
		Timeout:   o.Timeout,
		Transport: transport,
		// A redirect would take the headers, perhaps secrets, to another host.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &collector{client, strings.TrimSuffix(o.Endpoint, "/") + "/v1/traces", with}, nil
}

// post sends a body of spans once, and returns how many of them the collector says it rejected:
// any number. The status alone tells whether the others are taken.
func (c *collector) post(ctx context.Context, body []byte) (rejected int64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("User-Agent", "cdc-outbox")
	for name, value := range c.with {
		req.Header.Set(name, value)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	answer, unreadable := io.ReadAll(io.LimitReader(resp.Body, mostAnswer))
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return 0, &refusal{status: resp.StatusCode}
	}
	var said collectorpb.ExportTraceServiceResponse
	if unreadable != nil || proto.Unmarshal(answer, &said) != nil {
		return 0, nil // taken, in words of another protocol
	}
	return said.GetPartialSuccess().GetRejectedSpans(), nil
}

// refusal is the collector's answer to a request that it does not take.
type refusal struct{ status int }

func (r *refusal) Error() string {
	return fmt.Sprintf("the collector answers %d %s", r.status, http.StatusText(r.status))
}

// mayPass tells whether the same request may succeed later, as OTLP has it.
func mayPass(err error) bool {
	r, ok := errors.AsType[*refusal](err)
	if !ok {
		return true
	}
	switch r.status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}
