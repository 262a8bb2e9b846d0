package sink

import (
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

// present is s with the present contents of its files, or their last useful contents.
func (s SASL) present() SASL {
	members := s.members()
	for name := range s.Written {
		s.set(name, s.Written.Present(name, members[name]))
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

// Present returns why the present contents of files of credentials are of no use. Connections
// are made with the former contents.
func (o *Options) Present() (troubles []error) {
	if o.TLS != (TLS{}) {
		if _, err := clientTLS(o.TLS, tlsPrefix); err != nil {
			troubles = append(troubles, err)
		}
	}
	return append(troubles, o.SASL.Written.Troubles(saslPrefix)...)
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
