package debezium

import "strings"

// stores makes a section of TLS of Java's settings ssl.…. Java's own stores of keys must become
// PEM.
type stores struct {
	*translation
	key    string // begins the keys of the section
	prefix string // begins the names of variables
	server string
	get    func(name string) (Option, bool) // a setting ssl.…
}

// storeSettings are the settings with a meaning here.
var storeSettings = []string{
	"ssl.truststore.location", "ssl.truststore.certificates", "ssl.truststore.password", "ssl.truststore.type",
	"ssl.keystore.location", "ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.keystore.password", "ssl.keystore.type",
	"ssl.key.password", "ssl.endpoint.identification.algorithm",
}

// judge judges a setting.
func (s *stores) judge(o Option) {
	switch o.Name[strings.LastIndex(o.Name, "ssl."):] {
	case "ssl.truststore.location":
		s.store(o, "ca_file", "truststore", "_CA_FILE",
			"keytool -importkeystore -srckeystore STORE -destkeystore STORE.p12 -deststoretype PKCS12, then openssl pkcs12 -in STORE.p12 -nokeys -out CA.pem")
	case "ssl.keystore.location":
		s.store(o, "cert_file", "keystore", "_CERT_FILE",
			"keytool -importkeystore -srckeystore STORE -destkeystore STORE.p12 -deststoretype PKCS12, then openssl pkcs12 -in STORE.p12 -nodes -out CLIENT.pem, for cert_file and key_file")
	case "ssl.truststore.certificates":
		s.pem(o, "ca_file", "_CA_FILE")
	case "ssl.keystore.certificate.chain":
		s.pem(o, "cert_file", "_CERT_FILE")
	case "ssl.keystore.key":
		s.pem(o, "key_file", "_KEY_FILE")
	case "ssl.truststore.password", "ssl.keystore.password", "ssl.truststore.type", "ssl.keystore.type":
		s.say(o, Same, "", "with the store")
	case "ssl.key.password":
		s.say(o, Differs, s.key+"key_file", "the key must have no password: openssl pkey -in KEY -out KEY.pem")
	case "ssl.endpoint.identification.algorithm":
		if strings.TrimSpace(o.Value) != "" {
			s.say(o, Same, "", "the "+s.server+"'s name is always verified")
		} else {
			s.open(o, None, s.key+"server_name", "the "+s.server+"'s name is always verified: name the certificate's in server_name")
		}
	default:
		s.say(o, None, "", "Go's TLS chooses, from version 1.2 on")
	}
}

// store judges a store of keys: PEM is read, Java's own form is not.
func (s *stores) store(o Option, key, kind, variable, how string) {
	variable = s.prefix + variable
	form, _ := s.get("ssl." + kind + ".type")
	if strings.EqualFold(form.Value, "PEM") || strings.HasSuffix(strings.ToLower(o.Value), ".pem") {
		r := s.resolve(o, variable)
		s.put(s.key+key, r.text)
		if key == "cert_file" {
			s.put(s.key+"key_file", r.text)
		}
		if len(r.notes) > 0 {
			s.say(o, Differs, s.key+key, append([]string{"a file with it"}, r.notes...)...)
			return
		}
		s.say(o, Same, s.key+key)
		return
	}
	s.file(o, key, variable, "the path of a PEM file")
	if key == "cert_file" {
		s.file(o, "key_file", s.prefix+"_KEY_FILE", "the path of a PEM file")
	}
	s.say(o, Differs, s.key+key, "a PEM file instead, its path in "+variable+": "+how)
}

// pem judges certificates or a key within the input: ours are files.
func (s *stores) pem(o Option, key, variable string) {
	variable = s.prefix + variable
	s.file(o, key, variable, "the path of a PEM file with it")
	s.say(o, Differs, s.key+key, "a file: write it into one, and export "+variable+" with the path")
}

// file has a variable name the file of a key.
func (s *stores) file(o Option, key, variable, origin string) {
	s.put(s.key+key, "${"+variable+"}")
	s.variable(Secret{Variable: variable, Option: o.Written, Origin: origin})
}
