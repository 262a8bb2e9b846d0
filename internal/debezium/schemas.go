package debezium

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// schemaFormats are the formats of Confluent's converters, by class.
var schemaFormats = map[string]string{"avro": "avro", "protobuf": "protobuf", "jsonschema": "json_schema"}

// schemaFormat is the format of one of Confluent's converters, or "". Debezium Server takes
// Confluent's where it is given the name of a format.
func (t *translation) schemaFormat(c converter) string {
	class := strings.TrimSpace(c.option.Value)
	if !strings.HasPrefix(class, "io.confluent.") && (!t.server || strings.Contains(class, ".")) {
		return ""
	}
	return schemaFormats[c.class]
}

// bySchema makes encoding.value or encoding.key of one of Confluent's converters.
func (t *translation) bySchema(side string, c converter, format, note string) {
	key := "encoding." + side
	t.put(key+".format", format)
	found := t.schemaRegistry(side, c)
	open := !found || !t.subjects(side, c)
	if o, ok := t.option(side, c, "auto.register.schemas"); ok {
		if isTrue(o.Value) {
			t.say(o, Differs, key+".register", "schemas are registered from files, by "+key+".files")
		} else {
			t.say(o, Same, key+".register")
		}
	}
	if o, ok := t.option(side, c, "use.latest.version"); ok {
		t.say(o, Same, key+".version", "the latest version is always used")
	}
	if format == "json_schema" {
		o, given := t.option(side, c, "json.fail.invalid.schema")
		if !given {
			o, _ = t.get(side+".converter.json.fail.invalid.schema", "false")
		}
		t.put(key+".validate", strconv.FormatBool(isTrue(o.Value)))
		t.say(o, Same, key+".validate")
	}
	if !found {
		note = "write encoding.registry.urls: the input has no schema.registry.url; " + note
	}
	t.judge(side, c, Differs, key+".format", open, "by the latest schema of the subject, which the connector has registered; none is made of a payload", note)
}

// option is an option of the converter, in the input or in the worker.
func (t *translation) option(side string, c converter, own string) (Option, bool) {
	name := side + ".converter." + own
	if o, ok := t.options[name]; ok {
		return o, true
	}
	o, ok := t.worker[name]
	if _, here := t.options[side+".converter"]; here || t.server || !ok || !c.given {
		return Option{}, false
	}
	o.Name, o.Written = workerMark+o.Name, workerMark+o.Written
	return o, true
}

// schemaRegistry makes encoding.registry. Key and value have the same registry here.
func (t *translation) schemaRegistry(side string, c converter) (found bool) {
	const key = "encoding.registry."
	if o, ok := t.option(side, c, "schema.registry.url"); ok {
		found = true
		t.registryURLs(o)
	}
	for _, own := range []string{"basic.auth.user.info", "schema.registry.basic.auth.user.info"} {
		if o, ok := t.option(side, c, own); ok {
			kind, notes := t.registryLogin(o)
			t.say(o, kind, key+"username, "+key+"password", notes...)
		}
	}
	for _, own := range []string{"basic.auth.credentials.source", "bearer.auth.credentials.source"} {
		if o, ok := t.option(side, c, own); ok {
			kind := Same
			if source := strings.ToUpper(strings.TrimSpace(o.Value)); source != "URL" && source != "USER_INFO" && source != "STATIC_TOKEN" {
				kind = None
			}
			t.say(o, kind, key+"username", "there is a password or a token")
		}
	}
	if o, ok := t.option(side, c, "bearer.auth.token"); ok {
		r := t.secret(o, "REGISTRY_TOKEN")
		t.put(key+"token", r.text)
		t.say(o, Same, key+"token", r.notes...)
	}
	t.registryTLS(side, c)
	return found
}

// registryTLS makes encoding.registry.tls.
func (t *translation) registryTLS(side string, c converter) {
	of := stores{translation: t, key: "encoding.registry.tls.", prefix: "REGISTRY", server: "registry",
		get: func(name string) (Option, bool) { return t.option(side, c, "schema.registry."+name) }}
	urls, _ := t.result.settings["encoding.registry.urls"].([]string)
	used := slices.ContainsFunc(urls, func(text string) bool { return !strings.HasPrefix(strings.ToLower(text), "http://") })
	for _, name := range storeSettings {
		o, ok := of.get(name)
		if !ok {
			continue
		}
		key, both := t.options["key.converter.schema.registry."+name]
		switch {
		case !used:
			t.say(o, Same, "", "without effect: the registry's URL is none with https")
		case side == "value" && both && key.Value != o.Value:
			t.open(o, None, of.key, "key and value have the same registry here")
		default:
			of.judge(o)
		}
	}
}

func (t *translation) registryURLs(o Option) {
	const key = "encoding.registry.urls"
	kind, notes := Same, []string(nil)
	var urls []string
	for _, text := range list(o.Value) {
		item := Option{Name: o.Name, Written: o.Written, Value: text}
		if u, err := url.Parse(text); err == nil && u.User != nil && !connectReference.MatchString(text) {
			item.Value = unescaped(u.User.String())
			kind, notes = t.registryLogin(item)
			u.User = nil
			item.Value = u.String()
		}
		urls = append(urls, t.resolve(item, "REGISTRY_URL").text)
	}
	before, twice := t.result.settings[key].([]string)
	if twice && strings.Join(before, ",") != strings.Join(urls, ",") {
		t.open(o, None, key, "key and value have the same registry here")
		return
	}
	t.put(key, urls)
	t.say(o, kind, key, notes...)
}

// registryLogin makes username and password of user:password.
func (t *translation) registryLogin(o Option) (Kind, []string) {
	user, password, both := strings.Cut(o.Value, ":")
	if !both || connectReference.MatchString(o.Value) {
		t.put("encoding.registry.username", "${REGISTRY_USERNAME}")
		t.put("encoding.registry.password", "${REGISTRY_PASSWORD}")
		t.variable(Secret{Variable: "REGISTRY_USERNAME", Option: o.Written, Origin: "the login at the schema registry"})
		t.variable(Secret{Variable: "REGISTRY_PASSWORD", Option: o.Written, Origin: "the login at the schema registry"})
		return Differs, []string{"export REGISTRY_USERNAME and REGISTRY_PASSWORD, the parts of this value"}
	}
	r := t.secret(Option{Name: o.Name, Written: o.Written, Value: password}, "REGISTRY_PASSWORD")
	t.put("encoding.registry.username", literal(user))
	t.put("encoding.registry.password", r.text)
	return Same, r.notes
}

func unescaped(text string) string {
	if plain, err := url.PathUnescape(text); err == nil {
		return plain
	}
	return text
}

// subjects makes the strategy for the names of subjects; false: the name of the record has
// to be written.
func (t *translation) subjects(side string, c converter) bool {
	key := "encoding." + side + ".subject"
	o, ok := t.option(side, c, side+".subject.name.strategy")
	if !ok {
		return true
	}
	switch class := o.Value[strings.LastIndexAny(o.Value, ".$")+1:]; class {
	case "TopicNameStrategy":
		t.say(o, Same, key)
		return true
	case "RecordNameStrategy", "TopicRecordNameStrategy":
		t.put(key, map[string]string{"RecordNameStrategy": "record", "TopicRecordNameStrategy": "topic_record"}[class])
		t.open(o, Differs, key, "write the record's full name as encoding."+side+".record: by default it is the event's type")
		return true
	}
	t.open(o, None, key, "there is topic, record and topic_record")
	return false
}
