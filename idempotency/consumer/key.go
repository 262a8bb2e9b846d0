package consumer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/cdc-outbox/cdc-outbox/idempotency/internal/usercode"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// idHeader is the header with the event id in records of cdc-outbox and the
// Debezium outbox event router.
const idHeader = "id"

// Header takes the id from the header; from the last of several.
func Header(name string) func(r *kgo.Record) (string, error) {
	return func(r *kgo.Record) (string, error) {
		for i := len(r.Headers) - 1; i >= 0; i-- {
			if r.Headers[i].Key == name {
				return string(r.Headers[i].Value), nil
			}
		}
		return "", fmt.Errorf("%w: the record has no header %q", storage.ErrBadKey, name)
	}
}

// Position takes topic/partition/offset as the id. A record consumed again is
// recognised, a message produced twice is not; and a topic deleted and created
// anew begins with known offsets.
func Position(r *kgo.Record) (string, error) {
	id := make([]byte, 0, len(r.Topic)+len("/2147483647/9223372036854775807"))
	id = append(append(id, r.Topic...), '/')
	id = append(strconv.AppendInt(id, int64(r.Partition), 10), '/')
	return string(strconv.AppendInt(id, r.Offset, 10)), nil
}

// JSONPointer takes the id from the value, a JSON document, at the pointer (RFC
// 6901), e.g. "/payment/id". The value must be a string or a number, taken as
// written. Once refuses an invalid pointer.
func JSONPointer(pointer string) func(r *kgo.Record) (string, error) {
	if err := checkPointer(pointer); err != nil {
		return func(*kgo.Record) (string, error) { return "", err }
	}
	var tokens []string
	if pointer != "" {
		tokens = strings.Split(strings.TrimPrefix(pointer, "/"), "/")
	}
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	for i := range tokens {
		tokens[i] = unescape.Replace(tokens[i])
	}
	return func(r *kgo.Record) (string, error) {
		decoder := json.NewDecoder(bytes.NewReader(r.Value))
		decoder.UseNumber()
		var value any
		if err := decoder.Decode(&value); err != nil {
			return "", fmt.Errorf("%w: the value is not JSON: %w", storage.ErrBadKey, err)
		}
		for _, token := range tokens {
			value = child(value, token)
		}
		switch id := value.(type) {
		case string:
			return id, nil
		case json.Number:
			return id.String(), nil
		default:
			return "", fmt.Errorf("%w: the value has no string or number at %q", storage.ErrBadKey, pointer)
		}
	}
}

// errUseless is the error of a function giving no record an id.
var errUseless = fmt.Errorf("%w: no record has one", storage.ErrBadKey)

// notEscape matches a tilde not allowed by RFC 6901.
var notEscape = regexp.MustCompile(`~([^01]|$)`)

func checkPointer(pointer string) error {
	switch {
	case pointer != "" && pointer[0] != '/':
		return fmt.Errorf("%w: the JSON pointer %q does not begin with a slash", errUseless, pointer)
	case notEscape.MatchString(pointer):
		return fmt.Errorf("%w: in the JSON pointer %q, ~ is followed by neither 0 nor 1", errUseless, pointer)
	}
	return nil
}

// checkID finds out whether the function can give any record an id.
func checkID(id func(r *kgo.Record) (string, error)) (err error) {
	_ = usercode.Call(func() error { // another's may expect more than an empty record
		_, err = id(&kgo.Record{})
		return nil
	})
	if errors.Is(err, errUseless) {
		return err
	}
	return nil
}

// child returns the member or element of a decoded JSON value, or nil.
func child(value any, token string) any {
	switch v := value.(type) {
	case map[string]any:
		return v[token]
	case []any:
		if i, err := strconv.ParseUint(token, 10, 31); err == nil && int(i) < len(v) && strconv.FormatUint(i, 10) == token {
			return v[i]
		}
	}
	return nil
}
