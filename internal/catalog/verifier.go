package catalog

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
)

// scramIterations is PostgreSQL's own number (scram_iterations).
const scramIterations = 4096

// Verifier is the stored form of a password (RFC 5803, SCRAM-SHA-256), also
// accepted in place of the password: so the password is not in the server's log,
// and in nobody's history. For characters outside ASCII, clients and servers have
// forms of their own.
func Verifier(password string) (string, error) {
	salt := make([]byte, 16)
	_, _ = rand.Read(salt) // never fails
	return verifier(password, salt)
}

func verifier(password string, salt []byte) (string, error) {
	if strings.ContainsFunc(password, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "", failure.Configf("choose another password, or set it with psql's \\password", "the password has characters other than printable ASCII")
	}
	salted, err := pbkdf2.Key(sha256.New, password, salt, scramIterations, sha256.Size)
	if err != nil {
		return "", fmt.Errorf("derive a key from the password: %w", err)
	}
	sign := func(text string) []byte {
		mac := hmac.New(sha256.New, salted)
		mac.Write([]byte(text))
		return mac.Sum(nil)
	}
	stored := sha256.Sum256(sign("Client Key"))
	encode := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", scramIterations, encode(salt), encode(stored[:]), encode(sign("Server Key"))), nil
}
