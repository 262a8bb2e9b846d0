package sink

import (
	"maps"
	"slices"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

// formerTexts are by their keys.
var formerTexts former[string, string]

// present is s with the present contents of its files, or their last useful contents.
func (s SASL) present() SASL {
	for name, written := range s.Written {
		if text, err := formerTexts.or(written.Key(), func() (string, error) { return filled(name, written) }); err == nil {
			s.set(name, text)
		}
	}
	return s
}

// WithoutFiles is s without the contents of its files.
func (s SASL) WithoutFiles() SASL {
	for name := range s.Written {
		s.set(name, "")
	}
	return s
}

// filled reads a value, and refuses an empty value.
func filled(name string, written setting.Written) (string, error) {
	text, err := written.Read()
	if err != nil {
		return "", failure.Configf(failure.RemedyOf(err), "%s%s %w", saslPrefix, name, err)
	}
	if text == "" {
		return "", failure.Configf("write the value into the file", "%s%s is empty: its file has no content", saslPrefix, name)
	}
	return text, nil
}

// Present returns why the present contents of files of credentials are of no use. Connections
// are made with the former contents.
func (o *Options) Present() (troubles []error) {
	if o.TLS != (TLS{}) {
		if _, err := clientTLS(o.TLS, tlsPrefix); err != nil {
			troubles = append(troubles, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(o.SASL.Written)) {
		if _, err := filled(name, o.SASL.Written[name]); err != nil {
			troubles = append(troubles, err)
		}
	}
	return troubles
}

// set sets a member from a file.
func (s *SASL) set(name, value string) {
	secret := setting.Secret(value)
	switch name {
	case "username":
		s.Username = value
	case "password":
		s.Password = secret
	case "token":
		s.Token = secret
	case "client_id":
		s.ClientID = value
	case "client_secret":
		s.ClientSecret = secret
	case "access_key":
		s.AccessKey = value
	case "secret_key":
		s.SecretKey = secret
	case "session_token":
		s.SessionToken = secret
	}
}
