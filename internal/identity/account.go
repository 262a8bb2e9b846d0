package identity

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"strings"
	"time"

	"cloud.google.com/go/compute/metadata"
)

// GoogleAccount returns the email of the service account behind Google: from the
// variable GOOGLE_MANAGED_KAFKA_AUTH_PRINCIPAL, as for Google's own client, or else from the
// file GOOGLE_APPLICATION_CREDENTIALS, or from the metadata server. GoogleAccount blocks for
// answerTimeout at the most. Several goroutines may use GoogleAccount.
func GoogleAccount(ctx context.Context) (string, error) {
	if email := os.Getenv("GOOGLE_MANAGED_KAFKA_AUTH_PRINCIPAL"); email != "" {
		return email, nil
	}
	if file := os.Getenv("GOOGLE_APPLICATION_CREDENTIALS"); file != "" {
		return accountOf(file)
	}
	return accounts.get(ctx, environment(googleVariables))
}

// accountKept is how long a machine's account is taken for the same.
const accountKept = time.Hour

var accounts = newKept(askAccount, time.Now)

func askAccount(ctx context.Context) (string, time.Time, error) {
	email, err := metadata.NewClient(client).GetWithContext(ctx, "instance/service-accounts/default/email")
	email = strings.TrimSpace(email)
	if err == nil && email == "" {
		err = errors.New("it answers without an email")
	}
	if err != nil {
		return "", time.Time{}, unavailable("give the machine or pod a service account, or set GOOGLE_MANAGED_KAFKA_AUTH_PRINCIPAL to its email",
			"ask Google's metadata server for the service account", cause(ctx, err))
	}
	return email, time.Now().Add(accountKept), nil
}

// impersonated is the account in the URL of an external account.
var impersonated = regexp.MustCompile(`/serviceAccounts/([^/:]+):generateAccessToken$`)

func accountOf(file string) (string, error) {
	var named struct {
		Email string `json:"client_email"`
		URL   string `json:"service_account_impersonation_url"`
	}
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &named)
	}
	found := append(impersonated.FindStringSubmatch(named.URL), "", "")
	email := cmp.Or(named.Email, found[1])
	if err == nil && email == "" {
		err = errors.New("it names no service account")
	}
	if err != nil {
		return "", unavailable("correct GOOGLE_APPLICATION_CREDENTIALS, or set GOOGLE_MANAGED_KAFKA_AUTH_PRINCIPAL to the account's email", "read the service account in "+file, err)
	}
	return email, nil
}
