package transform

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/nearest"
)

// The places an additional column can go to.
const (
	placeHeader    = "header"
	placeEnvelope  = "envelope"
	placePartition = "partition"
)

var placements = []string{placeHeader, placeEnvelope, placePartition}

// field is an entry of event.additional.
type field struct {
	column    string
	placement string
	alias     string // the header's or member's name; the column's by default
}

// Partitioned tells whether a column places records in partitions.
func (o EventOptions) Partitioned() bool {
	fields, err := parseFields(o)
	return err == nil && slices.ContainsFunc(fields, func(f field) bool { return f.placement == placePartition })
}

const fieldForm = "column:header|envelope|partition[:alias]"

// parseFields reads event.additional and refuses names taken twice. As in
// Debezium, spaces around the parts and the placement's case mean nothing, and
// the same header may be given more than once.
func parseFields(ev EventOptions) ([]field, error) {
	var errs []error
	if name := ev.TypeHeader; reservedHeader(name, ev.PositionHeaders) || ev.CloudEvents.On() && cloudEventHeader(name) {
		errs = append(errs, failure.Configf("choose another name, such as eventType",
			"event.type_header: %q is the name of another header", name))
	}

	fields := make([]field, 0, len(ev.Additional))
	for _, entry := range ev.Additional {
		f, err := parseField(entry)
		if err == nil {
			err = checkField(f, entry, fields, ev)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		fields = append(fields, f)
	}
	return fields, errors.Join(errs...)
}

func parseField(entry string) (field, error) {
	parts := strings.Split(entry, ":")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	if len(parts) < 2 || len(parts) > 3 || slices.Contains(parts, "") {
		return field{}, failure.Configf("write it as "+fieldForm, "event.additional: %q is not of the form %s", entry, fieldForm)
	}
	f := field{column: parts[0], placement: strings.ToLower(parts[1]), alias: parts[len(parts)-1]}
	if len(parts) == 2 {
		f.alias = f.column
	}
	if !slices.Contains(placements, f.placement) {
		remedy := "use one of " + strings.Join(placements, ", ")
		if near := nearest.To(f.placement, placements); near != "" {
			remedy = fmt.Sprintf("did you mean %s? %s", near, remedy)
		}
		return field{}, failure.Configf(remedy, "event.additional: %q places the column in %q, which does not exist", entry, parts[1])
	}
	return f, nil
}

func checkField(f field, entry string, before []field, ev EventOptions) error {
	switch f.placement {
	case placeHeader:
		if ev.CloudEvents.On() && cloudEventHeader(f.alias) {
			return failure.Configf("choose another alias, or name the column in "+attributesKey,
				"event.additional: %q repeats a header of CloudEvents, %s", entry, f.alias)
		}
		if isPositionHeader(f.alias) && ev.PositionHeaders {
			return failure.Configf("choose another alias, or set event.position_headers to false",
				"event.additional: %q repeats the position header %s", entry, f.alias)
		}
	case placeEnvelope:
		taken := func(b field) bool { return b.placement == placeEnvelope && b.alias == f.alias }
		if f.alias == payloadMember || slices.ContainsFunc(before, taken) {
			return failure.Configf("give the column another alias: column:envelope:alias",
				"event.additional: %q puts a second member %q into the envelope", entry, f.alias)
		}
	case placePartition:
		if slices.ContainsFunc(before, func(b field) bool { return b.placement == placePartition }) {
			return failure.Configf("keep one column with the placement partition",
				"event.additional: %q is a second column for the partition", entry)
		}
	}
	return nil
}

// reservedHeader reports whether the type header must not have the name.
func reservedHeader(name string, positionHeaders bool) bool {
	return name == HeaderID || name == headerSchemaVersion || name == headerTraceparent ||
		positionHeaders && isPositionHeader(name)
}
