package catalog

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

func TestClassify(t *testing.T) {
	_, badURL := pgconn.ParseConfig("postgres://host:port/db")
	for _, tc := range []struct {
		name  string
		err   error
		class failure.Class
		is    error // nil: no particular error to wrap
	}{
		{"slot in use", &pgconn.PgError{Code: "55006"}, failure.Transient, ErrSlotActive},
		{"terminated", &pgconn.PgError{Code: "57P01"}, failure.Transient, ErrTerminated},
		{"crashed", &pgconn.PgError{Code: "57P02"}, failure.Transient, ErrCrashed},
		{"stopping or starting, in any language", &pgconn.PgError{Code: "57P03", Message: "das Datenbanksystem fährt herunter"}, failure.Transient, ErrUnavailable},
		{"no room", &pgconn.PgError{Code: "53300"}, failure.Transient, nil},
		{"wrong password", &pgconn.PgError{Code: "28P01"}, failure.Config, nil},
		{"no pg_hba.conf entry", &pgconn.PgError{Code: "28000"}, failure.Config, nil},
		{"no such database", &pgconn.PgError{Code: "3D000"}, failure.Config, nil},
		{"no privilege", &pgconn.PgError{Code: "42501"}, failure.Config, nil},
		{"wal_level, in any language", &pgconn.PgError{Code: "55000", Routine: "CheckLogicalDecodingRequirements", Message: "logische Dekodierung erfordert wal_level >= logical"}, failure.Config, nil},
		{"slot invalidated since the look at it", &pgconn.PgError{Code: "55000"}, failure.Transient, nil},
		{"a file of the server is missing", &pgconn.PgError{Code: "58P01"}, failure.Transient, nil},
		{"no publication, in any language", &pgconn.PgError{Code: "42704", Routine: "get_publication_oid", Message: "Publikation »x« existiert nicht"}, failure.Loss, nil},
		{"no slot", &pgconn.PgError{Code: "42704", Routine: "ReplicationSlotAcquire", Message: "replication slot \"publication\" does not exist"}, failure.Transient, nil},
		{"bad URL", badURL, failure.Config, nil},
		{"unknown host", &net.DNSError{IsNotFound: true}, failure.Transient, ErrUnknownHost},
		{"name server down", &net.DNSError{IsTemporary: true}, failure.Transient, nil},
		{"unknown CA", x509.UnknownAuthorityError{}, failure.Config, nil},
		{"another host's certificate", x509.HostnameError{Certificate: &x509.Certificate{}}, failure.Config, nil},
		{"expired certificate", x509.CertificateInvalidError{Reason: x509.Expired}, failure.Config, nil},
		{"anything else", errors.New("connection reset"), failure.Transient, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := Classify(fmt.Errorf("connect: %w", tc.err))
			if got := failure.ClassOf(err); got != tc.class {
				t.Errorf("class %v; want %v", got, tc.class)
			}
			if tc.class != failure.Transient && failure.RemedyOf(err) == "" {
				t.Error("no remedy")
			}
			if tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("%v does not wrap %q", err, tc.is)
			}
			for _, named := range []error{ErrSlotActive, ErrTerminated, ErrUnavailable, ErrUnknownHost} {
				if named != tc.is && errors.Is(err, named) {
					t.Errorf("%v wraps %q", err, named)
				}
			}
			if !errors.Is(err, tc.err) {
				t.Errorf("%v does not wrap its cause", err)
			}
		})
	}
	if err := Classify(nil); err != nil {
		t.Errorf("no error became %v", err)
	}
}

func TestNoticeError(t *testing.T) {
	for _, tc := range []struct {
		name   string
		notice pgconn.Notice
		class  failure.Class
	}{
		{"publication skipped, in any language", pgconn.Notice{SeverityUnlocalized: "WARNING", Severity: "WARNUNG", Code: "55000"}, failure.Loss},
		{"another warning", pgconn.Notice{SeverityUnlocalized: "WARNING", Code: "01000"}, failure.Transient},
		{"a mere notice", pgconn.Notice{SeverityUnlocalized: "NOTICE", Code: "55000"}, failure.Transient},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := NoticeError(&tc.notice)
			if got := failure.ClassOf(err); got != tc.class || (err == nil) != (tc.class == failure.Transient) {
				t.Errorf("%v, class %v; want class %v", err, got, tc.class)
			}
		})
	}
}
