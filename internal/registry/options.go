package registry

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cdc-outbox/cdc-outbox/internal/setting"
	"github.com/cdc-outbox/cdc-outbox/sink"
)

// Options are those of the section encoding.
type Options struct {
	Registry Server `yaml:"registry"`
	Value    Form   `yaml:"value"`
	Key      Form   `yaml:"key"`
	// MissingSchema is MissingWait or MissingBadEvent: the meaning of a missing,
	// refused or unusable schema.
	MissingSchema string `yaml:"missing_schema"`
}

// Server is a schema registry.
type Server struct {
	// URLs are of servers of the same registry; a failed request goes to the next.
	URLs     []string       `yaml:"urls"`
	Username string         `yaml:"username"`
	Password setting.Secret `yaml:"password"`
	// Token is a bearer token, in place of Username and Password.
	Token setting.Secret `yaml:"token"`
	// Written are the members written with files, by key. Each request reads them.
	Written setting.Files `yaml:"-" json:"-"`
	// TLS is for https URLs.
	TLS sink.HTTPS `yaml:"tls"`
	// Timeout bounds each request.
	Timeout time.Duration `yaml:"timeout"`
	// Refresh is how often a schema is looked for again, with its number.
	Refresh time.Duration `yaml:"refresh"`
	// CacheSize bounds the schemas kept, for values and for keys.
	CacheSize int `yaml:"cache_size"`
}

const (
	prefix    = "encoding.registry."
	tlsPrefix = prefix + "tls."
)

// Form is the form of a record's value or key.
type Form struct {
	// Format is among the formats below.
	Format string `yaml:"format"`
	// Subject is SubjectTopic, SubjectRecord or SubjectTopicRecord: the strategy for the
	// names of subjects.
	Subject string `yaml:"subject"`
	// Record is the record's full name, with ${type} for the event's type.
	Record string `yaml:"record" substitute:"no"`
	// Message is a Protobuf message's full name, likewise. "": with SubjectTopic the first
	// of the schema, else Record.
	Message string `yaml:"message" substitute:"no"`
	// Version of a subject is VersionLatest or a number.
	Version string `yaml:"version"`
	// SchemaID is of the schema of all records; 0: the subject decides.
	SchemaID int `yaml:"schema_id"`
	// Files are schemas by subject, to be looked up or registered.
	Files map[string]string `yaml:"files"`
	// References are the subjects of schemas that the files refer to, by the names in
	// the files. Such a schema may have a file, too.
	References map[string]string `yaml:"references"`
	Register   bool              `yaml:"register"`
	// UnknownFields is UnknownRefuse or UnknownIgnore: the meaning of members without
	// a field.
	UnknownFields string `yaml:"unknown_fields"`
	// Validate has FormatJSONSchema refuse documents against the schema, as
	// json.fail.invalid.schema of Confluent's converter; else they need only be JSON.
	Validate bool `yaml:"validate"`
}

// Values of the enumerations in Options.
const (
	FormatNone       = "none"
	FormatAvro       = "avro"
	FormatProtobuf   = "protobuf"
	FormatJSONSchema = "json_schema"
	FormatEncoded    = "encoded" // in the wire format already

	SubjectTopic       = "topic"
	SubjectRecord      = "record"
	SubjectTopicRecord = "topic_record"

	VersionLatest = "latest"

	UnknownRefuse = "refuse"
	UnknownIgnore = "ignore"

	MissingWait     = "wait"
	MissingBadEvent = "bad_event"
)

// eventType stands for the event's type in Form.Record and Form.Message.
const eventType = "${type}"

// DefaultOptions are the options of an empty section.
func DefaultOptions() Options {
	form := Form{
		Format: FormatNone, Subject: SubjectTopic, Record: eventType, Version: VersionLatest, UnknownFields: UnknownRefuse, Validate: true,
	}
	return Options{
		Registry:      Server{Timeout: 5 * time.Second, Refresh: time.Minute, CacheSize: 1000},
		Value:         form,
		Key:           form,
		MissingSchema: MissingWait,
	}
}

// On reports whether any record gets another form, or is looked at.
func (o *Options) On() bool { return o.Value.Format != FormatNone || o.Key.Format != FormatNone }

// Present returns why the present files of the registry's login and TLS are of no use.
func (o *Options) Present() (troubles []error) {
	if !o.On() {
		return nil
	}
	if err := o.Registry.TLS.Present(tlsPrefix); err != nil {
		troubles = append(troubles, err)
	}
	return append(troubles, o.Registry.Written.Troubles(prefix)...)
}

// Changes reports whether records have another form than their rows.
func (o *Options) Changes() bool {
	return formats[o.Value.Format] != nil || formats[o.Key.Format] != nil
}

// Validate reports faults, also of the files named by the options.
func (o *Options) Validate(report setting.Report) {
	o.Value.validate(report, "encoding.value.", o.Registry)
	o.Key.validate(report, "encoding.key.", o.Registry)
	report.OneOf("encoding.missing_schema", o.MissingSchema, MissingWait, MissingBadEvent)
	o.Registry.validate(report)
	if len(o.Registry.URLs) > 0 && !o.On() {
		report.Problem("encoding.registry.urls", "has no effect without encoding.value.format or encoding.key.format", "set encoding.value.format, for example to avro")
	}
}

func (s *Server) validate(report setting.Report) {
	encrypted := false
	for i, text := range s.URLs {
		u, err := url.Parse(text)
		switch {
		case strings.Contains(text, "@"):
			report.Problem(prefix+"urls", fmt.Sprintf("item %d has a user, and URLs are shown in logs", i+1), "set "+prefix+"username and password")
		case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
			report(setting.Fault{Key: prefix + "urls", Item: i + 1, Text: "is not an http or https URL", Remedy: "write for example [http://localhost:8081]"})
		}
		encrypted = encrypted || err == nil && u.Scheme == "https"
	}
	switch {
	case (s.Username == "") != (s.Password == ""):
		report.Problem(prefix+"username", "and "+prefix+"password go together", "set both, or neither")
	case s.Username != "" && s.Token != "":
		report.Problem(prefix+"token", "and "+prefix+"username exclude each other", "keep one")
	}
	if s.TLS != (sink.HTTPS{}) && len(s.URLs) > 0 && !encrypted {
		report.Problem(prefix+"urls", "has no https URL, so "+prefix+"tls has no effect", "write https://…, or remove "+prefix+"tls")
	}
	s.TLS.Validate(report, tlsPrefix)
	report.Between(prefix+"timeout", s.Timeout, 100*time.Millisecond, time.Minute)
	report.Between(prefix+"refresh", s.Refresh, time.Second, 24*time.Hour)
	report.Number(prefix+"cache_size", s.CacheSize, 1, 100_000)
}

func (f *Form) validate(report setting.Report, prefix string, server Server) {
	report.OneOf(prefix+"format", f.Format, append([]string{FormatNone, FormatEncoded}, slices.Sorted(maps.Keys(formats))...)...)
	report.OneOf(prefix+"subject", f.Subject, SubjectTopic, SubjectRecord, SubjectTopicRecord)
	report.OneOf(prefix+"unknown_fields", f.UnknownFields, UnknownRefuse, UnknownIgnore)
	if n, err := strconv.Atoi(f.Version); f.Version != VersionLatest && (err != nil || n < 1) {
		report.Problem(prefix+"version", "must be latest, or a positive number", "write latest, or the number of a version")
	}
	if f.SchemaID < 0 {
		report.Problem(prefix+"schema_id", "must be positive", "write the number of a schema")
	}
	f.validateUse(report, prefix)
	if _, known := formats[f.Format]; known && len(server.URLs) == 0 {
		report.Problem("encoding.registry.urls", "is required by "+prefix+"format", "write for example [http://localhost:8081]")
	}
	f.validateFiles(report, prefix)
}

// validateUse reports options without an effect.
func (f *Form) validateUse(report setting.Report, prefix string) {
	usual := DefaultOptions().Value
	format := formats[f.Format]
	schemas := format != nil
	for _, option := range []struct {
		name         string
		changed, has bool
		without      string
	}{
		{"subject", f.Subject != usual.Subject, schemas && f.SchemaID == 0, "a format with schemas by subject"},
		{"record", f.Record != usual.Record, f.Subject != SubjectTopic, prefix + "subject: record or topic_record"},
		{"message", f.Message != "", schemas && format.messages, prefix + "format: protobuf"},
		{"version", f.Version != usual.Version, schemas && f.SchemaID == 0 && len(f.Files) == 0, "a format with schemas by subject"},
		{"schema_id", f.SchemaID != 0, schemas, "a format with schemas"},
		{"files", len(f.Files) > 0, schemas && f.SchemaID == 0, "a format with schemas by subject"},
		{"references", len(f.References) > 0, len(f.Files) > 0, prefix + "files, the schemas that refer to others"},
		{"register", f.Register, len(f.Files) > 0, prefix + "files, the schemas to register"},
		{"unknown_fields", f.UnknownFields != usual.UnknownFields, schemas && format.fields, "a format with fields of its own"},
		{"validate", f.Validate != usual.Validate, f.Format == FormatJSONSchema, prefix + "format: json_schema"},
	} {
		if option.changed && !option.has {
			report.Problem(prefix+option.name, "has no effect without "+option.without, "remove it, or correct "+prefix+"format and the options beside")
		}
	}
	if f.Subject != SubjectTopic && f.Record == "" {
		report.Problem(prefix+"record", "is empty", "remove the key for the default, the event's type")
	}
}

func (f *Form) validateFiles(report setting.Report, prefix string) {
	format := formats[f.Format]
	if format == nil {
		return
	}
	for _, subject := range slices.Sorted(maps.Keys(f.Files)) {
		text, err := f.local(subject, nil)
		switch {
		case errors.Is(err, errElsewhere): // the registry has the rest
			continue
		case errors.Is(err, errCircle):
			report.Problem(prefix+"references", "lead from "+f.Files[subject]+" back to it", "remove one of the references")
			continue
		case err != nil:
			report.Problem(prefix+"files", "names "+f.Files[subject]+", which cannot be read: "+setting.Reason(err), "correct the path, or make the file readable for the connector's user")
			continue
		}
		if _, err := format.parse(text, parsing{}); err != nil {
			report.Problem(prefix+"files", "names "+f.Files[subject]+", which is no schema of the format "+f.Format+": "+err.Error(), "correct the schema")
		}
	}
}

// typed reports whether the event's type decides about the schema, or the message in the
// schema.
func (f *Form) typed() bool { return f.typedSubject() || f.typedMessage() }

func (f *Form) typedSubject() bool {
	return formats[f.Format] != nil && f.SchemaID == 0 && f.Subject != SubjectTopic && strings.Contains(f.Record, eventType)
}

func (f *Form) typedMessage() bool {
	return formats[f.Format] != nil && formats[f.Format].messages && strings.Contains(f.Message, eventType)
}

// NeedsType names the first option with a need for the header of the event's type, or "".
func (o *Options) NeedsType() string {
	for _, side := range []struct {
		name string
		form *Form
	}{{"value", &o.Value}, {"key", &o.Key}} {
		switch {
		case side.form.typedSubject():
			return "encoding." + side.name + ".subject"
		case side.form.typedMessage():
			return "encoding." + side.name + ".message"
		}
	}
	return ""
}
