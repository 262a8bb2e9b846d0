package httpapi

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
)

// mostAnswered bounds how much of an answer is read.
const mostAnswered = 1 << 20

// Ask returns the answer, of any status, of the connector that listens at address,
// see Address. Ask blocks until the answer is there or ctx ends.
func Ask(ctx context.Context, address, path string) (status int, body []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return 0, nil, fmt.Errorf("ask http.listen: %w", err)
	}
	// A proxy of the environment must not come between the two.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(request)
	if err != nil {
		return 0, nil, fmt.Errorf("the connector does not answer: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	if body, err = io.ReadAll(io.LimitReader(answer.Body, mostAnswered)); err != nil {
		return 0, nil, fmt.Errorf("read the connector's answer: %w", err)
	}
	return answer.StatusCode, body, nil
}

// Address is the address of the server of http.listen on the same machine; ok is
// false if unknown.
func Address(listen string) (hostport string, ok bool) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil || port == "0" {
		return "", false
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port), true
}
