package tracing

import (
	"errors"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/cdc-outbox/cdc-outbox/internal/setting"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

// Options are those of the section tracing.
type Options struct {
	// Endpoint is the base URL of a collector, as OTEL_EXPORTER_OTLP_ENDPOINT; empty: no
	// spans.
	Endpoint string `yaml:"otlp_endpoint"`
	// Headers are those of requests, as OTEL_EXPORTER_OTLP_HEADERS: name=value,name=value.
	Headers setting.Secret `yaml:"otlp_headers"`
	// Timeout bounds each request.
	Timeout time.Duration `yaml:"otlp_timeout"`
	// TLS is for an https endpoint.
	TLS sink.HTTPS `yaml:"otlp_tls"`
	// ServiceName is the resource's service.name.
	ServiceName string `yaml:"service_name"`
	// SampleRatio is the part, from 0 to 1, of events without a traceparent that get a
	// trace of their own.
	SampleRatio string `yaml:"sample_ratio"`
}

const tlsPrefix = "tracing.otlp_tls."

// DefaultOptions are the options of an empty section.
func DefaultOptions() Options {
	return Options{Timeout: 10 * time.Second, ServiceName: "cdc-outbox", SampleRatio: "0"}
}

// On reports whether spans are exported.
func (o *Options) On() bool { return o.Endpoint != "" }

// Ratio is SampleRatio as a number.
func (o *Options) Ratio() float64 {
	ratio, _ := strconv.ParseFloat(o.SampleRatio, 64)
	return ratio
}

// Validate reports faults.
func (o *Options) Validate(report setting.Report) {
	const key = "tracing."
	if !o.On() {
		usual := DefaultOptions()
		if *o != usual {
			report.Problem(key+"otlp_endpoint", "is empty, so the options beside it have no effect", "set it to the URL of a collector, for example http://localhost:4318, or remove tracing")
		}
		return
	}
	u, err := url.Parse(o.Endpoint)
	switch {
	case strings.Contains(o.Endpoint, "@"):
		report.Problem(key+"otlp_endpoint", "has a user, and URLs are shown in logs", "set "+key+"otlp_headers")
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		report.Problem(key+"otlp_endpoint", "is not an http or https URL", "write for example http://localhost:4318")
	case u.Port() == "4317":
		report.Problem(key+"otlp_endpoint", "has the port of OTLP over gRPC, and spans go over HTTP", "write the port of OTLP over HTTP, usually 4318")
	case u.Scheme == "http" && o.TLS != (sink.HTTPS{}):
		report.Problem(key+"otlp_endpoint", "is no https URL, so "+key+"otlp_tls has no effect", "write https://…, or remove "+key+"otlp_tls")
	}
	if _, err := headers(o.Headers.Reveal()); err != nil {
		report.Problem(key+"otlp_headers", "is not of the form name=value,name=value", "write for example api-key=${OTLP_API_KEY}; commas and = in a value as %2C and %3D")
	}
	o.TLS.Validate(report, tlsPrefix)
	report.Between(key+"otlp_timeout", o.Timeout, 100*time.Millisecond, time.Minute)
	if o.ServiceName == "" {
		report.Problem(key+"service_name", "is empty", "remove the key for the default, cdc-outbox")
	}
	if ratio, err := strconv.ParseFloat(o.SampleRatio, 64); err != nil || !(ratio >= 0 && ratio <= 1) {
		report.Problem(key+"sample_ratio", "is no number from 0 to 1", "write for example 0.01 for one event in a hundred")
	}
}

// nameCharacters are those of a header's name.
const nameCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~"

// headers reads OTEL_EXPORTER_OTLP_HEADERS's form.
func headers(text string) (map[string]string, error) {
	out := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		name = strings.TrimSpace(name)
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !ok || name == "" || strings.Trim(name, nameCharacters) != "" || err != nil || strings.ContainsFunc(value, unicode.IsControl) {
			return nil, errors.New("not of the form name=value,name=value")
		}
		out[name] = value
	}
	return out, nil
}
