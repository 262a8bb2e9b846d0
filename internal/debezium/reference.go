package debezium

import (
	"path"
	"regexp"
	"strings"
)

// connectReference is ${provider:[path:]key} of Connect's config providers.
var connectReference = regexp.MustCompile(`\$\{([^}]*?):(([^}]*?):)?([^}]*?)\}`)

// serverReference is ${name} or ${name:default} of Quarkus. $${ is literal.
var serverReference = regexp.MustCompile(`\$?\$\{([^}:]*)(:([^}]*))?\}`)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// literal writes text beyond the reach of our substitution.
func literal(text string) string { return strings.ReplaceAll(text, "$", "$$") }

// resolved is a value of the input in our syntax.
type resolved struct {
	text  string // with our references; literal dollars doubled
	plain string // the value itself, where there is no reference
	refs  bool
	notes []string // about references without an equal of ours
}

// resolve translates the references of a value. variable names the environment
// variable for a reference without an equal of ours.
func (t *translation) resolve(o Option, variable string) resolved {
	pattern := connectReference
	if t.server {
		pattern = serverReference
	}
	var r resolved
	var text, plain strings.Builder
	rest := o.Value
	for {
		m := pattern.FindStringSubmatchIndex(rest)
		if m == nil {
			break
		}
		groups := make([]string, len(m)/2)
		for i := range groups {
			if m[2*i] >= 0 {
				groups[i] = rest[m[2*i]:m[2*i+1]]
			}
		}
		text.WriteString(literal(rest[:m[0]]))
		plain.WriteString(rest[:m[0]])
		switch {
		case t.server && strings.HasPrefix(groups[0], "$$"):
			text.WriteString(literal(groups[0][1:]))
			plain.WriteString(groups[0][1:])
		default:
			reference, note := t.reference(o, groups, variable)
			r.refs = true
			text.WriteString(reference)
			if note != "" {
				r.notes = append(r.notes, note)
			}
		}
		rest = rest[m[1]:]
	}
	text.WriteString(literal(rest))
	plain.WriteString(rest)
	r.text, r.plain = text.String(), plain.String()
	return r
}

// reference is our reference in place of the input's, with a note where the value moves.
func (t *translation) reference(o Option, groups []string, variable string) (ours, note string) {
	if handler, isHandler := strings.CutPrefix(groups[2], "::"); t.server && isHandler {
		return t.elsewhere(o, variable, "what the handler "+printable(groups[1])+" has for "+printable(handler))
	}
	if t.server {
		name := groups[1]
		if !variableName.MatchString(name) {
			name = strings.ToUpper(strings.Trim(regexp.MustCompile(`[^A-Za-z0-9]+`).ReplaceAllString(name, "_"), "_"))
		}
		if !variableName.MatchString(name) {
			return t.elsewhere(o, variable, "the property "+printable(groups[1]))
		}
		if groups[2] != "" {
			note = "the default behind the colon has no counterpart: export " + name
		}
		return "${" + name + "}", note
	}
	provider, where, key := groups[1], groups[3], groups[4]
	switch t.provider(provider) {
	case "env":
		if variableName.MatchString(key) {
			return "${" + key + "}", ""
		}
	case "dir":
		if where != "" && key != "" && !strings.ContainsAny(where+key, "${}") {
			return "${file:" + path.Join(where, key) + "}", ""
		}
	case "file":
		return t.elsewhere(o, variable, "the value of "+printable(key)+" in "+where)
	case "secrets":
		return t.elsewhere(o, variable, "key "+printable(key)+" of Secret "+where+" (as an environment variable, or mounted: ${file:/path})")
	case "configmaps":
		return t.elsewhere(o, variable, "key "+printable(key)+" of ConfigMap "+where)
	}
	return t.elsewhere(o, variable, "what the provider "+printable(provider)+" has for "+printable(strings.Trim(where+":"+key, ":")))
}

// elsewhere refers to a variable, to be exported with the value from origin.
func (t *translation) elsewhere(o Option, variable, origin string) (ours, note string) {
	t.variable(Secret{Variable: variable, Option: o.Written, Origin: origin})
	return "${" + variable + "}", "export " + variable + ": " + origin
}

// providers are the names usual for Connect's config providers, by class.
var providers = map[string]string{
	"FileConfigProvider": "file", "DirectoryConfigProvider": "dir", "EnvVarConfigProvider": "env",
	"KubernetesSecretConfigProvider": "secrets", "KubernetesConfigMapConfigProvider": "configmaps",
}

// provider is the usual name of a provider: the worker may have another for the class.
func (t *translation) provider(name string) string {
	class := t.worker["config.providers."+name+".class"].Value
	class = class[strings.LastIndexByte(class, '.')+1:]
	if usual, ok := providers[class]; ok {
		return usual
	}
	switch name {
	case "strimzienv":
		return "env"
	case "directory":
		return "dir"
	}
	return name
}

// secret replaces a secret value by a reference to a variable, unless the input has a
// reference.
func (t *translation) secret(o Option, variable string) resolved {
	r := t.resolve(o, variable)
	if !r.refs {
		t.variable(Secret{Variable: variable, Option: o.Written, value: r.plain})
		r.text = "${" + variable + "}"
		r.notes = append(r.notes, "export "+variable+" with it")
	}
	return r
}

// variable notes a variable once.
func (t *translation) variable(s Secret) {
	for _, known := range t.result.Secrets {
		if known.Variable == s.Variable {
			return
		}
	}
	t.result.Secrets = append(t.result.Secrets, s)
}
