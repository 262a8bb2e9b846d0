package config

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/base/pgsql"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/fleet"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

// slotName is PostgreSQL's rule for replication slots (ReplicationSlotValidateName).
var slotName = regexp.MustCompile(`^[a-z0-9_]+$`)

// messagePrefix matches the allowed prefixes of logical messages. PostgreSQL
// takes any text, stored in the database's encoding; ASCII is the same in all.
var messagePrefix = regexp.MustCompile(`^[!-~]{1,48}$`)

func (l *loader) validateSource(report setting.Report) {
	s := &l.cfg.Source
	report.OneOf("source.auth", s.Auth, catalog.Auths...)
	if err := checkURL(s.URL); err != nil {
		l.reportError("source.url", err)
	} else {
		l.login()
	}
	for i, host := range s.Standbys {
		if err := catalog.CheckHost(host); err != nil {
			report(setting.Fault{Key: "source.standbys", Item: i + 1, Text: err.Error(), Remedy: failure.RemedyOf(err)})
		}
	}
	l.validateTables(s.Tables)
	if !slotName.MatchString(s.Slot) || len(s.Slot) > pgsql.MaxName {
		l.report("source.slot", "is not a legal slot name", "use 1 to 63 lower-case letters, digits or underscores")
	}
	if s.Publication == "" || len(s.Publication) > pgsql.MaxName {
		l.report("source.publication", "is not a legal publication name", "use 1 to 63 bytes")
	}
	report.OneOf("source.mode", s.Mode, ModeWAL, ModeMessage, ModePoll)
	if !messagePrefix.MatchString(s.MessagePrefix) {
		l.report("source.message_prefix", "is not a legal prefix", "use 1 to 48 printable ASCII characters without spaces")
	}
	report.OneOf("source.snapshot", s.Snapshot, SnapshotNever, SnapshotInitial)
	report.OneOf("source.failover", s.Failover, FailoverNew, FailoverAlways)
	report.OneOf("source.visibility", s.Visibility, VisibilityNone, VisibilityWait)
	if s.Rack != "" && !fleet.Label.MatchString(s.Rack) {
		l.report("source.rack", "is not a legal zone", fleet.LegalLabel)
	}
	report.Between("source.status_interval", s.StatusInterval, time.Millisecond, time.Minute)
	report.Between("source.liveness_timeout", s.LivenessTimeout, time.Second, time.Hour)
	if s.LivenessTimeout <= s.StatusInterval {
		l.report("source.liveness_timeout", "must be longer than source.status_interval", "raise it; 1m is the default")
	}
}

func (l *loader) validateTables(tables []pg.Table) {
	if len(tables) == 0 && l.cfg.Source.Mode != ModeMessage {
		l.report("source.tables", "is empty", "name the outbox table, for example [public.outbox]")
	}
	seen := map[pg.Table]bool{}
	for _, table := range tables {
		if seen[table] {
			l.report("source.tables", "names "+table.String()+" twice", "keep one")
		}
		seen[table] = true
	}
}

// checkURL judges a connection string by the driver's own rules.
func checkURL(text setting.Secret) error {
	if text == "" {
		return failure.Configf("set it in the file named by -c, or export CDC_OUTBOX_SOURCE_URL=postgres://user@host:5432/database", "is required")
	}
	if strings.HasPrefix(text.Reveal(), "jdbc:") {
		return failure.Configf("write postgres://user@host:5432/database", "is a JDBC URL")
	}
	if unencoded(text.Reveal()) { // or a part of a password would be shown as the name of a host
		return failure.Configf(encodePassword, "has an @, / or # in a password, or in another part, that is not percent-encoded")
	}
	parsed, err := pgconn.ParseConfig(text.Reveal())
	if err != nil {
		return failure.Configf("write postgres://user@host:5432/database?param=value or key=value pairs; "+encodePassword,
			"is not a connection string: %s", urlProblem(err))
	}
	if _, ok := parsed.RuntimeParams["replication"]; ok {
		return failure.Configf("remove it from the connection string", "sets replication, which the connector does itself where it must")
	}
	return catalog.CheckParameters(text.Reveal())
}

// encodePassword is the remedy for a password unfit for a URL.
const encodePassword = "write the password as it is in source.password, or percent-encode its special characters (%40 for @, %2F for /, %23 for #)"

// unencoded tells whether a URL has a character, most likely in its password,
// ending the part with the password too early, or too late.
func unencoded(text string) bool {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok || scheme != "postgres" && scheme != "postgresql" {
		return false
	}
	if strings.Contains(rest, "#") {
		return true
	}
	authority, after, _ := strings.Cut(rest, "/")
	if q := strings.IndexByte(authority, '?'); q >= 0 {
		authority, after = authority[:q], ""
	}
	path, _, _ := strings.Cut(after, "?")
	return strings.Count(authority, "@") > 1 || strings.Contains(path, "@")
}

// withPassword adds the password to a connection string without a password.
// libpq takes a password as a parameter, too.
func withPassword(text, password setting.Secret) setting.Secret {
	if password == "" || hasPassword(text.Reveal()) {
		return text
	}
	if !strings.Contains(text.Reveal(), "://") {
		return text + setting.Secret(" password='"+strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(password.Reveal())+"'")
	}
	separator := "?"
	if strings.Contains(text.Reveal(), "?") {
		separator = "&"
	}
	return text + setting.Secret(separator+"password="+strings.ReplaceAll(url.QueryEscape(password.Reveal()), "+", "%20"))
}

// login completes the URL of the source.
func (l *loader) login() {
	s := &l.cfg.Source
	login := catalog.Login{URL: l.given["source.url"].written}
	if l.alsoOfURL("source.auth") {
		login.Auth = s.Auth
	}
	if password := s.Password; password != "" && l.alsoOfURL("source.password") {
		if !hasPassword(s.URL.Reveal()) {
			login.Password = l.given["source.password"].written
		}
		s.URL = withPassword(s.URL, password)
	}
	s.URL = l.withLogin("source.url", "source.auth", s.URL, login)
}

// alsoOfURL tells whether a key of the login is for the URL, too. A URL from a
// flag is somebody else's, for example an administrator's, with another login.
func (l *loader) alsoOfURL(key string) bool {
	return l.given["source.url"].origin != flagOrigin || l.given[key].origin == flagOrigin
}

// withLogin adds the login to a valid connection string, or reports a
// contradiction.
func (l *loader) withLogin(key, auth string, url setting.Secret, login catalog.Login) setting.Secret {
	if login.Cloud() && hasPassword(url.Reveal()) {
		l.report(auth, "is "+login.Auth+", and there is a password, too", "remove the password, or "+auth)
		return url
	}
	whole := login.In(url.Reveal())
	if err := catalog.CheckLogin(whole); err != nil {
		l.reportError(key, err)
		return url
	}
	return setting.Secret(whole)
}

var passwordPair = regexp.MustCompile(`(^|\s)password\s*=`)

// hasPassword tells whether a valid connection string has a password.
func hasPassword(text string) bool {
	parsed, err := url.Parse(text)
	if err != nil || parsed.Scheme == "" {
		return passwordPair.MatchString(text)
	}
	_, has := parsed.User.Password()
	return has || parsed.Query().Has("password")
}

// urlReasons are pgconn's reasons without any text of the connection string.
var urlReasons = []string{
	"failed to parse as URL", "failed to parse as keyword/value", "invalid port", "could not match",
	"invalid connect_timeout", "invalid sslcertmode", "unknown target_session_attrs value",
	"invalid min_protocol_version", "invalid max_protocol_version", "min_protocol_version cannot be greater",
	"unknown channel_binding value", "invalid require_auth",
}

// urlProblem is the reason of a parse error without any text of the connection
// string: pgconn masks passwords there by best effort only ("Applications
// should not assume that parse errors are safe to expose").
func urlProblem(err error) string {
	text := err.Error()
	// The part up to the last quote is the connection string.
	text = text[strings.LastIndexByte(text, '`')+1:]
	for _, reason := range []string{"failed to configure TLS", "failed to read service"} {
		// These wrap the error of a file or of sslmode, which is worth showing.
		if cause := errors.Unwrap(err); strings.Contains(text, reason) && cause != nil {
			return fmt.Sprintf("%s: %v", reason, cause)
		}
	}
	for _, reason := range urlReasons {
		if strings.Contains(text, reason) {
			return reason
		}
	}
	return "it cannot be parsed"
}
