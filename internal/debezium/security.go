package debezium

import (
	"slices"
	"strings"
)

const (
	saslKey = "sink.kafka.sasl."
	tlsKey  = "sink.kafka.tls."
)

// security makes sink.kafka.tls and sink.kafka.sasl of the producer's settings.
func (t *translation) security() {
	protocol, ok := t.setting("security.protocol")
	name := strings.ToUpper(strings.TrimSpace(protocol.Value))
	encrypted, login := strings.HasSuffix(name, "SSL"), strings.HasPrefix(name, "SASL")
	if ok {
		switch name {
		case "PLAINTEXT":
			t.say(protocol, Same, "")
		case "SSL", "SASL_SSL":
			t.put(tlsKey+"enabled", "true")
			t.say(protocol, Same, tlsKey+"enabled")
		case "SASL_PLAINTEXT":
			t.say(protocol, Same, saslKey+"mechanism")
		default:
			t.open(protocol, None, tlsKey+"enabled", "neither PLAINTEXT, SSL, SASL_PLAINTEXT nor SASL_SSL")
		}
	}
	t.login(login)
	t.tls(encrypted)
}

// login makes sink.kafka.sasl.
func (t *translation) login(used bool) {
	mechanism, given := t.setting("sasl.mechanism")
	config, hasConfig := t.setting("sasl.jaas.config")
	if !used {
		for _, o := range t.settings("sasl.") {
			t.say(o, Same, "", "without effect: security.protocol is none with SASL")
		}
		return
	}
	name := strings.ToUpper(strings.TrimSpace(mechanism.Value))
	switch {
	case !given:
		t.open(Option{Name: producerPrefix + "sasl.mechanism", Written: t.written(producerPrefix + "sasl.mechanism"), Value: "GSSAPI"}, None,
			saslKey+"mechanism", "Kerberos is Kafka's default, and has no counterpart")
	case name == "PLAIN" || name == "SCRAM-SHA-256" || name == "SCRAM-SHA-512":
		t.put(saslKey+"mechanism", name)
		t.say(mechanism, Same, saslKey+"mechanism")
		t.passwordLogin(config, hasConfig)
	case name == "OAUTHBEARER":
		t.put(saslKey+"mechanism", name)
		t.say(mechanism, Same, saslKey+"mechanism")
		t.oauth(config, hasConfig)
	case name == "AWS_MSK_IAM":
		t.put(saslKey+"mechanism", name)
		t.say(mechanism, Same, saslKey+"mechanism")
		if hasConfig {
			t.aws(config)
		}
	default:
		t.put(saslKey+"mechanism", name)
		t.open(mechanism, None, saslKey+"mechanism", "there is PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER and AWS_MSK_IAM")
	}
	for _, o := range t.settings("sasl.") {
		t.say(o, None, "", "the login is made and renewed by the connector itself")
	}
}

// settings are the settings of a prefix without a verdict.
func (t *translation) settings(prefix string) (all []Option) {
	for name, o := range t.options {
		if _, done := t.judged[name]; !done && strings.HasPrefix(name, producerPrefix+prefix) {
			all = append(all, o)
		}
	}
	for name, o := range t.worker {
		if _, done := t.judged[workerMark+name]; !done && strings.HasPrefix(name, "producer."+prefix) {
			all = append(all, Option{Name: workerMark + name, Written: workerMark + o.Written, Value: o.Value})
		}
	}
	slices.SortFunc(all, func(a, b Option) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// passwordLogin makes username and password of a JAAS entry.
func (t *translation) passwordLogin(config Option, given bool) {
	user := Option{Name: config.Name, Written: config.Written, Value: "${KAFKA_USERNAME}"}
	const keys = saslKey + "username, " + saslKey + "password"
	entry, err := parseJAAS(config.Value)
	whole := connectReference.FindString(config.Value) == strings.TrimSpace(config.Value) && config.Value != ""
	if !given || err != nil || whole {
		t.put(saslKey+"username", "${KAFKA_USERNAME}")
		t.put(saslKey+"password", "${KAFKA_PASSWORD}")
		t.variable(Secret{Variable: "KAFKA_USERNAME", Option: config.Written, Origin: "the login"})
		t.variable(Secret{Variable: "KAFKA_PASSWORD", Option: config.Written, Origin: "the login"})
		note := "export KAFKA_USERNAME and KAFKA_PASSWORD: username and password of the login"
		switch {
		case !given:
			config = Option{Name: producerPrefix + "sasl.jaas.config", Written: t.written(producerPrefix + "sasl.jaas.config")}
			t.open(config, None, keys, note, "the input has no login: a worker's KAFKA_OPTS may name a file with it")
		case whole:
			t.say(config, Differs, keys, note)
		default:
			t.open(config, None, keys, note, "it "+err.Error())
		}
		return
	}
	user.Value = entry.options["username"]
	name := t.resolve(user, "KAFKA_USERNAME")
	user.Value = entry.options["password"]
	password := t.secret(user, "KAFKA_PASSWORD")
	t.put(saslKey+"username", name.text)
	t.put(saslKey+"password", password.text)
	kind, extra := Same, ""
	if entry.module != plainModule && entry.module != scramModule {
		kind, extra = Differs, "taken for a login by username and password"
	}
	if entry.options["tokenauth"] == "true" {
		kind, extra = Differs, "delegation tokens are not renewed here"
	}
	t.say(config, kind, keys, append(append([]string{extra}, name.notes...), password.notes...)...)
}

// oauth makes the client credentials grant of the JAAS entry and of Kafka's settings.
func (t *translation) oauth(config Option, given bool) {
	entry, err := parseJAAS(config.Value)
	if !given || err != nil {
		entry.options = map[string]string{}
	}
	pick := func(jaasNames []string, setting string) (Option, bool) {
		for _, name := range jaasNames {
			if v, ok := entry.options[name]; ok {
				return Option{Name: config.Name, Written: config.Written, Value: v}, true
			}
		}
		return t.setting(setting)
	}
	var notes []string
	take := func(key, variable string, isSecret bool, jaasNames []string, setting string) bool {
		o, ok := pick(jaasNames, setting)
		if !ok {
			return false
		}
		r := t.resolve(o, variable)
		if isSecret {
			r = t.secret(o, variable)
		}
		if key == "scopes" {
			t.put(saslKey+key, strings.Fields(r.text))
		} else {
			t.put(saslKey+key, r.text)
		}
		if o.Name == config.Name {
			notes = append(notes, r.notes...)
		} else {
			t.say(o, Same, saslKey+key, r.notes...)
		}
		return true
	}
	endpoint := take("token_url", "KAFKA_TOKEN_URL", false, []string{"oauth.token.endpoint.uri"}, "sasl.oauthbearer.token.endpoint.url")
	id := take("client_id", "KAFKA_CLIENT_ID", false, []string{"clientId", "oauth.client.id"}, "sasl.oauthbearer.client.credentials.client.id")
	secret := take("client_secret", "KAFKA_CLIENT_SECRET", true, []string{"clientSecret", "oauth.client.secret"}, "sasl.oauthbearer.client.credentials.client.secret")
	take("scopes", "KAFKA_SCOPES", false, []string{"scope", "oauth.scope"}, "sasl.oauthbearer.scope")
	extensions := map[string]string{}
	for name, value := range entry.options {
		if extension, ok := strings.CutPrefix(name, "extension_"); ok {
			extensions[extension] = value
		}
	}
	if len(extensions) > 0 {
		t.put(saslKey+"extensions", extensions)
	}
	if !given {
		config = Option{Name: producerPrefix + "sasl.jaas.config", Written: t.written(producerPrefix + "sasl.jaas.config")}
	}
	switch {
	case endpoint && id && secret:
		if given {
			t.say(config, Same, saslKey+"client_id, "+saslKey+"client_secret", notes...)
		}
	default:
		t.open(config, None, saslKey+"token_url", append(notes, "of OAuth there is the client credentials grant: token_url, client_id and client_secret")...)
	}
}

// aws judges the JAAS entry of MSK: credentials are the environment's.
func (t *translation) aws(config Option) {
	entry, err := parseJAAS(config.Value)
	switch {
	case err != nil || entry.module != awsModule:
		t.open(config, None, saslKey+"access_key", "no entry of "+awsModule)
	case len(entry.options) > 0:
		t.open(config, Differs, saslKey+"access_key", "of the entry's options none is read: give the workload the role (IRSA, Pod Identity, ECS, IMDSv2), or set AWS_PROFILE")
	default:
		t.say(config, Same, saslKey+"mechanism", "with the workload's credentials, as Amazon's own client")
	}
}

// tls makes sink.kafka.tls of stores of keys.
func (t *translation) tls(used bool) {
	of := stores{translation: t, key: tlsKey, prefix: "KAFKA", server: "broker", get: t.setting}
	for _, o := range t.settings("ssl.") {
		if !used {
			t.say(o, Same, "", "without effect: security.protocol is none with SSL")
			continue
		}
		of.judge(o)
	}
}
