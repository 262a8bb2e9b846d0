package outbox

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
)

// maxMaxBytes keeps a statement below the gigabyte PostgreSQL allows for a
// value: bytes are written as two hexadecimal digits, text may be escaped.
const maxMaxBytes = 256 << 20

func (o Options) withDefaults() Options {
	o.Table = o.Table.withDefaults()
	o.Prefix = cmp.Or(o.Prefix, DefaultPrefix)
	o.MaxBytes = cmp.Or(o.MaxBytes, DefaultMaxBytes)
	return o
}

// validate returns the faults of options with their defaults.
func (o Options) validate() error {
	errs := []error{o.Table.validate()}
	if !legalPrefix(o.Prefix) {
		errs = append(errs, fmt.Errorf("Prefix: %q is not 1 to %d printable ASCII characters without spaces, and so cannot be the connector's source.message_prefix", o.Prefix, maxPrefix))
	}
	if int(o.Payload) >= len(payloadTypes) {
		errs = append(errs, fmt.Errorf("Payload: %s is none of JSONB, JSON, Text, Bytes", o.Payload))
	}
	if o.MaxBytes < 1 || o.MaxBytes > maxMaxBytes {
		errs = append(errs, fmt.Errorf("MaxBytes: %d is not between 1 and %d", o.MaxBytes, maxMaxBytes))
	}
	if o.ContextHeaders != nil && o.Table.NoHeaders {
		errs = append(errs, errors.New("ContextHeaders: Table.NoHeaders says that headers cannot be written"))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("invalid options of an outbox writer: %w", err)
	}
	return nil
}

// maxPrefix is the length of the longest prefix the connector reads.
const maxPrefix = 48

// legalPrefix tells whether a connector can be told the prefix: messages of
// another would be read by nobody, and nobody would notice.
func legalPrefix(prefix string) bool {
	beyond := func(r rune) bool { return r < '!' || r > '~' }
	return len(prefix) <= maxPrefix && !strings.ContainsFunc(prefix, beyond)
}
