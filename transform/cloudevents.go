package transform

import (
	"errors"
	"fmt"
	"mime"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

// CloudEvents makes records events of CloudEvents 1.0, by the specification's binding for
// Kafka. The attributes id, type and partitionkey are those of the event: EventOptions.ID,
// Type and Key.
type CloudEvents struct {
	// Mode is CloudEventsNone, CloudEventsBinary or CloudEventsStructured.
	Mode string `yaml:"mode"`
	// Source, DataSchema and DataContentType are attributes of events without a column
	// for them, or NULL there. Empty: no data schema; a content type by the payload.
	Source          string `yaml:"source"`
	DataSchema      string `yaml:"dataschema"`
	DataContentType string `yaml:"datacontenttype"`
	// Attributes are columns, each "column:attribute", or "column" for the attribute
	// of that name.
	Attributes []string `yaml:"attributes"`
	// Encoded is the content type of values by a schema of a registry; empty: there is
	// no registry. Package config sets it.
	Encoded string `yaml:"-"`
}

// Values of CloudEvents.Mode.
const (
	CloudEventsNone       = "none"
	CloudEventsBinary     = "binary"
	CloudEventsStructured = "structured"
)

// On reports whether records are CloudEvents.
func (c *CloudEvents) On() bool { return c.Mode != "" && c.Mode != CloudEventsNone }

// The attributes of the specification that a column may have, or the connector writes.
const (
	attributeSource      = "source"
	attributeSubject     = "subject"
	attributeTime        = "time"
	attributeSchema      = "dataschema"
	attributeContentType = "datacontenttype"
)

// written are attributes of an option each; data is the payload's.
var written = map[string]string{
	"id": "event.id names its column", "type": "event.type names its column", "partitionkey": "it is the record's key",
	"specversion": "it is always 1.0", "data": "event.payload names its column", "data_base64": "event.payload names its column",
}

// attributeField is an entry of CloudEvents.Attributes.
type attributeField struct{ column, name string }

const attributesKey = "event.cloudevents.attributes"

// longestName is the length of an attribute's name that the specification recommends, and
// that libraries refuse to exceed.
const longestName = 20

// parseAttributes reads CloudEvents.Attributes.
func parseAttributes(c CloudEvents) (fields []attributeField, err error) {
	var errs []error
	for _, entry := range c.Attributes {
		column, name, two := strings.Cut(entry, ":")
		f := attributeField{strings.TrimSpace(column), strings.TrimSpace(name)}
		if !two {
			f.name = f.column
		}
		taken := func(of attributeField) bool { return of.name == f.name }
		switch because, own := written[f.name]; {
		case f.column == "" || f.name == "":
			err = failure.Configf("write it as column:attribute", "%s: %q is not of the form column:attribute", attributesKey, entry)
		case own:
			err = failure.Configf("leave the entry out", "%s: %q gives the attribute %s a column, but %s", attributesKey, entry, f.name, because)
		case len(f.name) > longestName || strings.Trim(f.name, "abcdefghijklmnopqrstuvwxyz0123456789") != "":
			err = failure.Configf("name another attribute: column:attribute",
				"%s: %q is no name of a CloudEvents attribute: 1 to %d letters from a to z and digits", attributesKey, f.name, longestName)
		case slices.ContainsFunc(fields, taken):
			err = failure.Configf("keep one entry", "%s: %q gives the attribute %s a second column", attributesKey, entry, f.name)
		default:
			fields = append(fields, f)
			continue
		}
		errs = append(errs, err)
	}
	return fields, errors.Join(errs...)
}

// validate reports faults.
func (c *CloudEvents) validate(report setting.Report) {
	const key = "event.cloudevents."
	report.OneOf(key+"mode", c.Mode, CloudEventsNone, CloudEventsBinary, CloudEventsStructured)
	fields, _ := parseAttributes(*c) // New reports the error
	has := func(name string) bool {
		return slices.ContainsFunc(fields, func(f attributeField) bool { return f.name == name })
	}
	if !c.On() {
		if c.Source != "" || c.DataSchema != "" || c.DataContentType != "" || len(c.Attributes) > 0 {
			report.Problem(key+"mode", "is none, so the options beside it have no effect", "set it to binary or structured, or remove event.cloudevents")
		}
		return
	}
	for _, option := range []struct{ name, value string }{{attributeSource, c.Source}, {attributeSchema, c.DataSchema}, {attributeContentType, c.DataContentType}} {
		if option.value == "" {
			continue
		}
		if err := checkAttribute(option.name, []byte(option.value)); err != nil {
			report.Problem(key+option.name, err.Error(), attributeRemedies[option.name])
		}
	}
	if c.Source == "" && !has(attributeSource) {
		report.Problem(key+"source", "is required with "+key+"mode", attributeRemedies[attributeSource]+"; or name its column: "+attributesKey+": [column:source]")
	}
}

var attributeRemedies = map[string]string{
	attributeSource:      "write a URI of the service that writes the events, for example /orders or https://example.com/orders",
	attributeSchema:      "write an absolute URI, for example https://example.com/schemas/order.json",
	attributeContentType: "write a media type, for example application/json",
}

// checkAttribute returns why the text cannot be the attribute of the name.
func checkAttribute(name string, text []byte) error {
	if err := checkString(text); err != nil {
		return err
	}
	switch name {
	case attributeSource:
		if _, err := url.Parse(string(text)); err != nil {
			return errors.New("is no URI reference")
		}
	case attributeSchema:
		if u, err := url.Parse(string(text)); err != nil || !u.IsAbs() {
			return errors.New("is no absolute URI")
		}
	case attributeContentType:
		if _, _, err := mime.ParseMediaType(string(text)); err != nil || !strings.ContainsRune(string(text), '/') {
			return errors.New("is no media type")
		}
	}
	return nil
}

// checkString returns why the text is no String of the specification.
func checkString(text []byte) error {
	for i := 0; i < len(text); {
		if c := text[i]; ' ' <= c && c < 0x7f {
			i++
			continue
		}
		r, n := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && n == 1 {
			return errors.New("is not valid UTF-8")
		}
		if r < ' ' || 0x7f <= r && r < 0xa0 || 0xfdd0 <= r && r <= 0xfdef || r&0xfffe == 0xfffe {
			return fmt.Errorf("has the character U+%04X, which CloudEvents does not allow", r)
		}
		i += n
	}
	return nil
}

// jsonType reports whether data of the content type is JSON.
func jsonType(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (strings.HasSuffix(media, "/json") || strings.HasSuffix(media, "+json"))
}

// cloudEventHeader reports whether the header is one of a CloudEvent.
func cloudEventHeader(name string) bool {
	return name == headerContentType || strings.HasPrefix(name, attributePrefix)
}
