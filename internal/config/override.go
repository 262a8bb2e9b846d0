package config

import (
	"regexp"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/base/nearest"
)

const environmentPrefix = "CDC_OUTBOX_"

// environmentName is the variable overriding key.
func environmentName(key string) string {
	return environmentPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// foreignVariable matches variables with our prefix, but no overrides: the path
// of the configuration file, PostgreSQL's programs for the demo, our tests'
// variables, and those injected by Kubernetes for Services with names beginning
// with cdc-outbox
// (https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables).
var foreignVariable = regexp.MustCompile(`^CDC_OUTBOX_(CONFIG|PG_BIN|IDEMPOTENCY_STORE|TEST_.*|` +
	`(\w+_)?SERVICE_HOST|(\w+_)?SERVICE_PORT(_\w+)?|(\w+_)?PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// readEnvironment merges the CDC_OUTBOX_… variables, in the order of the keys
// in the struct.
func (l *loader) readEnvironment(environ []string) {
	if l.again {
		l.readVariables()
		return
	}
	keys := map[string]bool{}
	var names []string
	for _, section := range append([]string{""}, l.pipelineNames()...) {
		if section != "" {
			section = join(pipelinesKey, section)
		}
		for _, key := range l.fields.keys {
			name := environmentName(join(section, key))
			keys[name] = true
			names = append(names, name)
		}
	}
	l.readVariables()
	for _, assignment := range environ {
		name, _, _ := strings.Cut(assignment, "=")
		if !strings.HasPrefix(name, environmentPrefix) || keys[name] || foreignVariable.MatchString(name) {
			continue
		}
		remedy := "unset it; docs/configuration.md lists the variables"
		if known := nearest.To(name, names); known != "" {
			remedy = "did you mean " + known + "?"
		}
		l.add(Problem{Origin: "environment variable " + name, Text: "names no configuration key", Remedy: remedy})
	}
}

// readVariables merges the variables of the level being read.
func (l *loader) readVariables() {
	for _, key := range l.fields.keys {
		name := environmentName(l.name(key))
		if text, ok := l.environ[name]; ok {
			l.override("environment variable "+name, l.fields.byKey[key], text)
		}
	}
}

// readFlags merges key=value overrides. An argument in another form, perhaps a
// secret, is not repeated in the message.
func (l *loader) readFlags(set []string) {
	for _, assignment := range set {
		key, text, ok := strings.Cut(assignment, "=")
		if !ok {
			l.add(Problem{Origin: flagOrigin, Text: "wants key=value", Remedy: "for example --set log.level=debug"})
			continue
		}
		if _, ok := l.pipelineOf(key); ok || l.again && strings.HasPrefix(key, pipelinesKey+".") {
			continue // overlay's
		}
		if strings.HasPrefix(key, pipelinesKey+".") {
			l.unknown(flagOrigin, printableKey(key), l.suggestPipelineKey(key))
			continue
		}
		l.flag(key, text)
	}
}

const flagOrigin = "flag --set"

// flag stores the value of a --set.
func (l *loader) flag(key, text string) {
	f, ok := l.fields.byKey[key]
	if !ok {
		l.unknown(flagOrigin, printableKey(key), l.suggestKey(key))
		return
	}
	l.override(flagOrigin, f, text)
}

// override stores a value given as a single string, without substitution: a
// shell has done that.
func (l *loader) override(origin string, f *field, text string) {
	g := given{origin: origin}
	if !f.secret() {
		g.shown = display(text)
	}
	l.note(f.key, g)
	v, err := textValue(f, text)
	if err == nil {
		l.noteItems(f, v)
		err = f.set(v)
	}
	if err != nil {
		l.reportError(f.key, err)
	}
}
