package pgserver

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
)

// verifier is PostgreSQL's stored form of a password (PostgreSQL documentation,
// "pg_authid"; RFC 5803), with 1000 iterations in place of 4096: a random password
// needs no more, and tests connect some thousand times. lib/pq takes no number of fewer
// digits.
func verifier(password string) (string, error) {
	const iterations = 1000
	salt := rand.Text()
	salted, err := pbkdf2.Key(sha256.New, password, []byte(salt), iterations, sha256.Size)
	if err != nil {
		return "", err
	}
	stored := sha256.Sum256(sum(salted, "Client Key"))
	text := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", iterations, text([]byte(salt)), text(stored[:]), text(sum(salted, "Server Key"))), nil
}

func sum(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}
