package identity

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
)

// Azure returns an access token of the workload for a scope, as
// https://ossrdbms-aad.database.windows.net/.default, from the first of:
// workload identity (AZURE_FEDERATED_TOKEN_FILE, AZURE_CLIENT_ID,
// AZURE_TENANT_ID, AZURE_AUTHORITY_HOST); the managed identity of an app
// (IDENTITY_ENDPOINT, IDENTITY_HEADER), or of the machine (IMDS), where
// AZURE_CLIENT_ID chooses among several. Azure blocks for answerTimeout at the
// most. Several goroutines may use Azure.
func Azure(ctx context.Context, scope string) (Token, error) {
	return entra.get(ctx, scope, environment(azureVariables))
}

var entra = newTokens(askAzure, time.Now)

// azureVariables name the source of tokens.
var azureVariables = []string{
	"AZURE_FEDERATED_TOKEN_FILE", "AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_AUTHORITY_HOST",
	"IDENTITY_ENDPOINT", "IDENTITY_HEADER", "AZURE_POD_IDENTITY_AUTHORITY_HOST",
}

func askAzure(ctx context.Context, scope string) (Token, error) {
	if file := os.Getenv("AZURE_FEDERATED_TOKEN_FILE"); file != "" {
		token, err := federated(ctx, file, scope)
		if err != nil {
			return Token{}, unavailable("add a federated credential for the service account to the identity AZURE_CLIENT_ID, and let the connector reach AZURE_AUTHORITY_HOST",
				"ask Microsoft Entra for a token of identity "+os.Getenv("AZURE_CLIENT_ID"), cause(ctx, err))
		}
		return token, nil
	}
	token, err := managed(ctx, strings.TrimSuffix(scope, "/.default"))
	if err != nil {
		return Token{}, unavailable("give the workload an identity (workload identity in Kubernetes, a managed identity elsewhere), and set AZURE_CLIENT_ID where there are several",
			"ask Azure's metadata service for a token", cause(ctx, err))
	}
	return token, nil
}

// federated exchanges the service account's token, as the client credentials
// grant with an assertion.
func federated(ctx context.Context, file, scope string) (Token, error) {
	assertion, err := os.ReadFile(file)
	if err != nil {
		return Token{}, err
	}
	tenant, id := os.Getenv("AZURE_TENANT_ID"), os.Getenv("AZURE_CLIENT_ID")
	if tenant == "" || id == "" {
		return Token{}, errors.New("AZURE_TENANT_ID or AZURE_CLIENT_ID is not set")
	}
	authority := strings.TrimSuffix(cmp.Or(os.Getenv("AZURE_AUTHORITY_HOST"), "https://login.microsoftonline.com"), "/")
	grant := clientcredentials.Config{
		ClientID: id, TokenURL: authority + "/" + url.PathEscape(tenant) + "/oauth2/v2.0/token",
		Scopes: []string{scope}, AuthStyle: oauth2.AuthStyleInParams,
		EndpointParams: url.Values{
			"client_assertion_type": {"urn:ietf:params:oauth:client-assertion-type:jwt-bearer"},
			"client_assertion":      {strings.TrimSpace(string(assertion))},
		},
	}
	return exchanged(grant.Token(context.WithValue(ctx, oauth2.HTTPClient, client)))
}

// exchanged is a token of the oauth2 library, or the refusal without the answer's
// body.
func exchanged(token *oauth2.Token, err error) (Token, error) {
	if answer, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		return Token{}, fmt.Errorf("%s answers %s: %s %s", answer.Response.Request.URL.Host, answer.Response.Status, answer.ErrorCode, answer.ErrorDescription)
	}
	if err != nil {
		return Token{}, err
	}
	return Token{token.AccessToken, token.Expiry}, nil
}

// managed asks for the token of a managed identity. The library with this
// protocol, azidentity, would add 1.1 MB.
func managed(ctx context.Context, resource string) (Token, error) {
	at, version, header, value := os.Getenv("IDENTITY_ENDPOINT"), "2019-08-01", "X-IDENTITY-HEADER", os.Getenv("IDENTITY_HEADER")
	if at == "" || value == "" {
		host := strings.TrimSuffix(cmp.Or(os.Getenv("AZURE_POD_IDENTITY_AUTHORITY_HOST"), "http://169.254.169.254"), "/")
		at, version, header, value = host+"/metadata/identity/oauth2/token", "2018-02-01", "Metadata", "true"
	}
	query := url.Values{"api-version": {version}, "resource": {resource}}
	if id := os.Getenv("AZURE_CLIENT_ID"); id != "" {
		query.Set("client_id", id)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at+"?"+query.Encode(), nil) //nolint:gosec // the platform names the place
	if err != nil {
		return Token{}, err
	}
	request.Header.Set(header, value)
	answer, err := client.Do(request) //nolint:gosec // as above
	if err != nil {
		return Token{}, err
	}
	defer func() { _ = answer.Body.Close() }()
	var body struct {
		Token     string      `json:"access_token"`
		ExpiresOn json.Number `json:"expires_on"` // Unix time, often as text
		Error     string      `json:"error"`
		Text      string      `json:"error_description"`
	}
	err = json.NewDecoder(io.LimitReader(answer.Body, 1<<20)).Decode(&body)
	if answer.StatusCode != http.StatusOK {
		return Token{}, fmt.Errorf("%s answers %s: %s %s", request.URL.Host, answer.Status, body.Error, body.Text)
	}
	if err != nil || body.Token == "" {
		return Token{}, errors.New(request.URL.Host + " answers without a token")
	}
	ends, err := body.ExpiresOn.Int64()
	if err != nil {
		return Token{}, errors.New(request.URL.Host + " answers without an end of the token")
	}
	return Token{body.Token, time.Unix(ends, 0)}, nil
}
