package claimcheck

import (
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/pg"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
	"github.com/cdc-outbox/cdc-outbox/sink"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// Options are the section claim_check.
type Options struct {
	// Store is StoreNone, StoreS3 or StoreTable.
	Store string `yaml:"store"`
	// Above is the size of the largest value in Kafka.
	Above int64 `yaml:"above" unit:"bytes"`
	// Timeout bounds an attempt, beside the time for the value at slowest.
	Timeout time.Duration `yaml:"timeout"`
	// Parallel is how many values are written at a time.
	Parallel int `yaml:"parallel"`
	// Type is the media type of values; "": by the payload's format.
	Type string `yaml:"type"`
	// Retention is how long values stay in the table; 0: for good.
	Retention time.Duration `yaml:"retention"`
	S3        S3            `yaml:"s3"`
	Table     Table         `yaml:"table"`
	// Written are the members of S3 written with files, by key. Each request reads them.
	Written setting.Files `yaml:"-" json:"-"`
}

// S3 is a bucket.
type S3 struct {
	// Endpoint is an http or https URL; "" is Amazon's.
	Endpoint string `yaml:"endpoint"`
	// Region is the bucket's; "": AWS_REGION, or the server is asked.
	Region string `yaml:"region"`
	Bucket string `yaml:"bucket"`
	// Prefix begins the names of objects.
	Prefix string `yaml:"prefix"`
	// Credentials is CredentialsAuto, CredentialsStatic, CredentialsEnvironment,
	// CredentialsFile or CredentialsRole.
	Credentials  string         `yaml:"credentials"`
	AccessKey    string         `yaml:"access_key"`
	SecretKey    setting.Secret `yaml:"secret_key"`
	SessionToken setting.Secret `yaml:"session_token"`
	// File and Profile are for CredentialsFile; "" is Amazon's default.
	File    string `yaml:"file"`
	Profile string `yaml:"profile"`
	// TLS is for an https endpoint.
	TLS sink.HTTPS `yaml:"tls"`
}

const (
	s3Prefix  = "claim_check.s3."
	tlsPrefix = s3Prefix + "tls."
)

// Table is a table of PostgreSQL.
type Table struct {
	// URL is of the database; "" is source.url.
	URL setting.Secret `yaml:"url"`
	// Auth is one of catalog.Auths, for URL.
	Auth string `yaml:"auth"`
	// Name follows SQL's quoting rules, and may have a schema.
	Name string `yaml:"name"`
}

// Values of the enumerations in Options.
const (
	StoreNone  = "none"
	StoreS3    = "s3"
	StoreTable = "table"

	CredentialsAuto        = "auto"
	CredentialsStatic      = "static"
	CredentialsEnvironment = "environment"
	CredentialsFile        = "file"
	CredentialsRole        = "role"
)

// DefaultOptions are the options of an empty section.
func DefaultOptions() Options {
	return Options{
		Store:    StoreNone,
		Above:    512 << 10,
		Timeout:  10 * time.Second,
		Parallel: 4,
		S3:       S3{Credentials: CredentialsAuto},
		Table:    Table{Name: "cdc_outbox_claims", Auth: catalog.AuthPassword},
	}
}

// On reports whether large values are kept elsewhere.
func (o *Options) On() bool { return o.Store != StoreNone }

// Present returns why the present files of the bucket's login and TLS are of no use.
func (o *Options) Present() (troubles []error) {
	if o.Store != StoreS3 {
		return nil
	}
	if err := o.S3.TLS.Present(tlsPrefix); err != nil {
		troubles = append(troubles, err)
	}
	return append(troubles, o.Written.Troubles(s3Prefix)...)
}

// Takes reports whether a value of so many bytes is kept elsewhere.
func (o *Options) Takes(bytes int) bool { return o.On() && int64(bytes) > o.Above }

// bucketName is the common part of the rules of Amazon and others.
var bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)

// Validate reports faults.
func (o *Options) Validate(report setting.Report) {
	report.OneOf("claim_check.store", o.Store, StoreNone, StoreS3, StoreTable)
	if o.Above < transform.SmallestReferred || o.Above > 1<<30 {
		report.Problem("claim_check.above", "must be between 1KiB and 1GiB", "write for example 512KiB")
	}
	report.Between("claim_check.timeout", o.Timeout, 100*time.Millisecond, 10*time.Minute)
	report.Number("claim_check.parallel", o.Parallel, 1, 64)
	if strings.ContainsFunc(o.Type, func(r rune) bool { return r < ' ' || r > '~' }) {
		report.Problem("claim_check.type", "is not a media type", "write for example application/json")
	}
	switch {
	case o.Retention != 0 && o.Store != StoreTable:
		report.Problem("claim_check.retention", "has no effect without claim_check.store: table", "remove it; a bucket has lifecycle rules")
	case o.Retention != 0:
		report.Between("claim_check.retention", o.Retention, time.Hour, 10*365*24*time.Hour)
	}
	if o.Store == StoreS3 {
		o.S3.validate(report)
	} else if o.S3 != DefaultOptions().S3 {
		report.Problem("claim_check.s3", "has no effect without claim_check.store: s3", "set claim_check.store to s3, or remove it")
	}
	switch {
	case o.Store != StoreTable && o.Table != DefaultOptions().Table:
		report.Problem("claim_check.table", "has no effect without claim_check.store: table", "set claim_check.store to table, or remove it")
	case o.Store == StoreTable:
		report.OneOf("claim_check.table.auth", o.Table.Auth, catalog.Auths...)
		if o.Table.URL == "" && o.Table.Auth != catalog.AuthPassword {
			report.Problem("claim_check.table.auth", "has no effect without claim_check.table.url", "remove it: the login is the one of source.url")
		}
		if _, err := pg.ParseTable(o.Table.Name); err != nil {
			report.Problem("claim_check.table.name", err.Error(), pg.TableRemedy)
		}
	}
}

func (s *S3) validate(report setting.Report) {
	const prefix = "claim_check.s3."
	if !bucketName.MatchString(s.Bucket) {
		report.Problem(prefix+"bucket", "is not the name of a bucket", "write 3 to 63 lower-case letters, digits, dots and hyphens")
	}
	if strings.HasPrefix(s.Prefix, "/") || len(s.Prefix) > 512 || strings.ContainsFunc(s.Prefix, func(r rune) bool { return r <= ' ' || r > '~' }) {
		report.Problem(prefix+"prefix", "is not the beginning of an object's name", "write for example outbox/")
	}
	encrypted := true
	if s.Endpoint != "" {
		u, err := url.Parse(s.Endpoint)
		switch {
		case strings.Contains(s.Endpoint, "@"):
			report.Problem(prefix+"endpoint", "has a user, and endpoints are shown in logs", "set "+prefix+"access_key and secret_key")
		case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "":
			report.Problem(prefix+"endpoint", "is not an http or https URL without a path", "write for example https://s3.example:9000")
		}
		encrypted = err == nil && u.Scheme == "https"
	}
	if s.TLS != (sink.HTTPS{}) && !encrypted {
		report.Problem(prefix+"endpoint", "is not an https URL, so "+prefix+"tls has no effect", "write https://…, or remove "+prefix+"tls")
	}
	s.TLS.Validate(report, tlsPrefix)
	s.validateCredentials(report)
}

func (s *S3) validateCredentials(report setting.Report) {
	const prefix = "claim_check.s3."
	report.OneOf(prefix+"credentials", s.Credentials, CredentialsAuto, CredentialsStatic, CredentialsEnvironment, CredentialsFile, CredentialsRole)
	keyed := s.AccessKey != "" || s.SecretKey != ""
	switch {
	case (s.AccessKey == "") != (s.SecretKey == ""):
		report.Problem(prefix+"access_key", "and "+prefix+"secret_key go together", "set both, or neither")
	case s.Credentials == CredentialsStatic && !keyed:
		report.Problem(prefix+"access_key", "is required by "+prefix+"credentials: static", "set it and "+prefix+"secret_key, best as ${file:/path} or ${VARIABLE}")
	case keyed && s.Credentials != CredentialsStatic && s.Credentials != CredentialsAuto:
		report.Problem(prefix+"access_key", "has no effect with "+prefix+"credentials: "+s.Credentials, "set "+prefix+"credentials to static, or remove it")
	case s.SessionToken != "" && !keyed:
		report.Problem(prefix+"session_token", "has no effect without "+prefix+"access_key", "set "+prefix+"access_key and secret_key, or remove it")
	}
	if (s.File != "" || s.Profile != "") && s.Credentials != CredentialsFile {
		report.Problem(prefix+"file", "and "+prefix+"profile have no effect without "+prefix+"credentials: file", "set "+prefix+"credentials to file, or remove them")
	}
	if s.Credentials == CredentialsFile {
		report.File(prefix+"file", s.File)
	}
}

// region is the bucket's region, as far as known.
func (s *S3) region() string {
	for _, region := range []string{s.Region, os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION")} {
		if region != "" {
			return region
		}
	}
	return ""
}
