package debezium

import (
	"net/url"
	"strings"
)

// database makes source.url and source.password of the options database.….
func (t *translation) database() {
	host, hasHost := t.get("database.hostname", "")
	port, _ := t.get("database.port", "5432")
	user, _ := t.get("database.user", "")
	name, _ := t.get("database.dbname", "")
	parts := []struct {
		option   Option
		key      string
		variable string
		value    resolved
	}{
		{host, "host", "CDC_HOST", resolved{}}, {port, "port", "CDC_PORT", resolved{}},
		{user, "user", "CDC_USER", resolved{}}, {name, "dbname", "CDC_DATABASE", resolved{}},
	}
	refs := false
	for i := range parts {
		p := &parts[i]
		p.option.Value = strings.TrimSpace(p.option.Value)
		p.value = t.resolve(p.option, p.variable)
		refs = refs || p.value.refs
		if _, given := t.options[p.option.Name]; given {
			t.say(p.option, Same, "source.url", p.value.notes...)
		}
	}
	if !hasHost {
		t.open(host, None, "source.url", "the input names no server")
	}
	if name.Value == "" {
		t.open(name, None, "source.url", "the input names no database")
	}
	parameters := t.parameters()
	for _, p := range parameters {
		refs = refs || p.refs
	}
	if refs || strings.Contains(host.Value, ":") {
		pairs := make([]string, 0, len(parts)+len(parameters))
		for _, p := range parts {
			if p.value.text != "" {
				pairs = append(pairs, p.key+"="+quoted(p.value.text))
			}
		}
		for _, p := range parameters {
			pairs = append(pairs, p.name+"="+quoted(p.text))
		}
		t.put("source.url", strings.Join(pairs, " "))
	} else {
		u := url.URL{Scheme: "postgres", Host: hosts(host.Value, parts[1].value.plain), Path: "/" + parts[3].value.plain}
		if user.Value != "" {
			u.User = url.User(parts[2].value.plain)
		}
		query := make([]string, 0, len(parameters))
		for _, p := range parameters {
			query = append(query, p.name+"="+strings.ReplaceAll(url.QueryEscape(p.plain), "%2F", "/"))
		}
		u.RawQuery = strings.Join(query, "&")
		t.put("source.url", literal(u.String()))
	}
	t.password()
}

// hosts adds the port to each host.
func hosts(names, port string) string {
	each := list(names)
	for i, name := range each {
		each[i] = name + ":" + port
	}
	return strings.Join(each, ",")
}

// quoted is a value of a connection string in key=value pairs. References stay.
func quoted(text string) string {
	if text != "" && !strings.ContainsAny(text, ` '\$`) {
		return text
	}
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(text) + "'"
}

func (t *translation) password() {
	o, given := t.get("database.password", "")
	switch {
	case !given:
	case o.Value == "":
		t.say(o, Same, "", "empty")
	default:
		r := t.secret(o, "CDC_PASSWORD")
		t.put("source.password", r.text)
		t.say(o, Same, "source.password", r.notes...)
	}
}

// parameter is a parameter of source.url.
type parameter struct {
	name string
	resolved
}

// parameters returns the parameters of TLS.
func (t *translation) parameters() (all []parameter) {
	mode, given := t.get("database.sslmode", "prefer")
	mode.Value = strings.ToLower(strings.TrimSpace(mode.Value))
	_, hasRoot := t.get("database.sslrootcert", "")
	if given {
		r := t.resolve(mode, "CDC_SSLMODE")
		all = append(all, parameter{"sslmode", r})
		switch {
		case mode.Value == "require" && hasRoot:
			t.say(mode, Differs, "source.url", "with sslrootcert libpq checks the server's certificate, as with verify-ca; there it is not checked")
		default:
			t.say(mode, Same, "source.url", r.notes...)
		}
	}
	for _, o := range []struct{ name, parameter, note string }{
		{"database.sslrootcert", "sslrootcert", ""},
		{"database.sslcert", "sslcert", ""},
		{"database.sslkey", "sslkey", "in PEM: openssl pkcs8 -inform DER -nocrypt -in KEY.pk8 -out KEY.pem makes it of the form that Java's driver reads"},
	} {
		option, given := t.options[o.name]
		if !given || option.Value == "" {
			continue
		}
		r := t.resolve(option, "CDC_"+strings.ToUpper(o.parameter))
		all = append(all, parameter{o.parameter, r})
		kind := Same
		if o.note != "" {
			kind = Differs
		}
		t.say(option, kind, "source.url", append([]string{o.note}, r.notes...)...)
	}
	if o, given := t.options["database.sslpassword"]; given && o.Value != "" {
		r := t.secret(o, "CDC_SSLPASSWORD")
		r.refs = true
		all = append(all, parameter{"sslpassword", r})
		t.say(o, Same, "source.url", r.notes...)
	}
	if o, given := t.options["database.sslfactory"]; given {
		switch {
		case strings.HasSuffix(o.Value, "NonValidatingFactory"):
			t.say(o, Differs, "source.url", "sslmode=require does not check the certificate either, as long as sslrootcert is not set")
		default:
			t.open(o, None, "source.url", "a class of Java; sslmode, sslrootcert, sslcert and sslkey say how TLS is made")
		}
	}
	return all
}
