package debezium

import (
	"errors"
	"slices"
	"strings"
)

// Login modules of Kafka's clients.
const (
	plainModule = "org.apache.kafka.common.security.plain.PlainLoginModule"
	scramModule = "org.apache.kafka.common.security.scram.ScramLoginModule"
	oauthModule = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
	awsModule   = "software.amazon.msk.auth.iam.IAMLoginModule"
)

// jaas is a parsed sasl.jaas.config: a login module with options.
type jaas struct {
	module  string
	options map[string]string
}

// errJAAS does not repeat the text with the passwords.
var errJAAS = errors.New(`is not of the form: MODULE required name="value" …;`)

// parseJAAS reads a single entry, MODULE FLAG name=value …; with its semicolon.
func parseJAAS(text string) (jaas, error) {
	j := jaas{options: map[string]string{}}
	rest := strings.TrimSpace(text)
	var flag string
	j.module, rest = word(rest)
	flag, rest = word(rest)
	if !slices.Contains([]string{"required", "requisite", "sufficient", "optional"}, strings.ToLower(strings.TrimSuffix(flag, ";"))) {
		return j, errJAAS
	}
	if strings.HasSuffix(flag, ";") {
		return j, nil
	}
	for rest != "" && rest[0] != ';' {
		name, after, ok := strings.Cut(rest, "=")
		if !ok {
			return j, errJAAS
		}
		value, after, err := jaasValue(strings.TrimLeft(after, " \t\r\n"))
		if err != nil {
			return j, err
		}
		j.options[strings.TrimSpace(name)] = value
		rest = strings.TrimLeft(after, " \t\r\n")
	}
	return j, nil
}

// word cuts the first word.
func word(text string) (first, rest string) {
	end := strings.IndexAny(text, " \t\r\n")
	if end < 0 {
		return text, ""
	}
	return text[:end], strings.TrimLeft(text[end:], " \t\r\n")
}

// jaasValue cuts a value, in quotes of either kind or bare.
func jaasValue(text string) (value, rest string, err error) {
	if text == "" {
		return "", "", errJAAS
	}
	quote := text[0]
	if quote != '"' && quote != '\'' {
		end := strings.IndexAny(text, " \t\r\n;")
		if end < 0 {
			end = len(text)
		}
		return text[:end], text[end:], nil
	}
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == '\\' && i+1 < len(text):
			i++
			b.WriteByte(text[i])
		case text[i] == quote:
			return b.String(), text[i+1:], nil
		default:
			b.WriteByte(text[i])
		}
	}
	return "", "", errJAAS
}
