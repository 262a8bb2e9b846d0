package identity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"cloud.google.com/go/compute/metadata"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
)

// Google returns an access token of the workload for a scope, as
// https://www.googleapis.com/auth/sqlservice.login, by the file
// GOOGLE_APPLICATION_CREDENTIALS (a service account's key, an external account),
// or else from the metadata server, also GKE's (GCE_METADATA_HOST). Google
// blocks for answerTimeout at the most. Several goroutines may use Google.
func Google(ctx context.Context, scope string) (Token, error) {
	return googles.get(ctx, scope, environment(googleVariables))
}

var googles = newTokens(askGoogle, time.Now)

var googleVariables = []string{"GOOGLE_APPLICATION_CREDENTIALS", "GCE_METADATA_HOST"}

func askGoogle(ctx context.Context, scope string) (Token, error) {
	if file := os.Getenv("GOOGLE_APPLICATION_CREDENTIALS"); file != "" {
		token, err := byFile(ctx, scope)
		if err != nil {
			return Token{}, unavailable("correct GOOGLE_APPLICATION_CREDENTIALS, and let the connector reach the URLs in the file",
				"ask Google for a token by "+file, cause(ctx, err))
		}
		return token, nil
	}
	token, err := byMetadata(ctx, scope)
	if err != nil {
		return Token{}, unavailable("give the machine or pod a service account (Workload Identity in GKE), or set GOOGLE_APPLICATION_CREDENTIALS",
			"ask Google's metadata server for a token", cause(ctx, err))
	}
	return token, nil
}

func byFile(ctx context.Context, scope string) (Token, error) {
	ctx = context.WithValue(ctx, oauth2.HTTPClient, client)
	found, err := google.FindDefaultCredentials(ctx, scope)
	if err != nil {
		return Token{}, err
	}
	return exchanged(found.TokenSource.Token())
}

// byMetadata asks without the oauth2 library, which looks for the metadata
// server once in a process: GKE's may come after the pod's start.
func byMetadata(ctx context.Context, scope string) (Token, error) {
	text, err := metadata.NewClient(client).GetWithContext(ctx,
		"instance/service-accounts/default/token?"+url.Values{"scopes": {scope}}.Encode())
	if err != nil {
		if answer, ok := errors.AsType[*metadata.Error](err); ok {
			err = fmt.Errorf("it answers with status %d", answer.Code)
		}
		return Token{}, err
	}
	var body struct {
		Token string `json:"access_token"`
		Lives int64  `json:"expires_in"` // seconds
	}
	if json.Unmarshal([]byte(text), &body) != nil || body.Token == "" || body.Lives <= 0 {
		return Token{}, errors.New("it answers without a token, or without the token's end")
	}
	return Token{body.Token, time.Now().Add(time.Duration(body.Lives) * time.Second)}, nil
}
