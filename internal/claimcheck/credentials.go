package claimcheck

import (
	"context"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/cdc-outbox/cdc-outbox/internal/identity"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

// credentialsOf are the configured credentials. The library asks for each request.
func credentialsOf(o S3, files setting.Files) *credentials.Credentials {
	switch {
	case o.AccessKey != "":
		return credentials.New(asked{func(context.Context) (identity.AWSCredentials, error) {
			return identity.AWSCredentials{
				AccessKey: files.Present("access_key", o.AccessKey),
				SecretKey: files.Secret("secret_key", o.SecretKey).Reveal(), SessionToken: files.Secret("session_token", o.SessionToken).Reveal(),
			}, nil
		}})
	case o.Credentials == CredentialsEnvironment:
		return credentials.NewEnvAWS()
	}
	source := identity.AWSSource{Role: o.Credentials == CredentialsRole, File: o.Credentials == CredentialsFile, Path: o.File, Profile: o.Profile}
	return credentials.New(asked{source.Credentials})
}

// WithoutFiles is o without the contents of its files.
func (o Options) WithoutFiles() Options {
	for name := range o.Written {
		switch name {
		case "access_key":
			o.S3.AccessKey = ""
		case "secret_key":
			o.S3.SecretKey = ""
		case "session_token":
			o.S3.SessionToken = ""
		}
	}
	return o
}

// asked are credentials kept by nobody here.
type asked struct {
	ask func(context.Context) (identity.AWSCredentials, error)
}

var _ credentials.Provider = asked{}

// RetrieveWithCredContext implements credentials.Provider.
func (a asked) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	ctx := cc.Context
	if ctx == nil {
		ctx = context.Background()
	}
	got, err := a.ask(ctx)
	return credentials.Value{AccessKeyID: got.AccessKey, SecretAccessKey: got.SecretKey, SessionToken: got.SessionToken, SignerType: credentials.SignatureV4}, err
}

// Retrieve implements credentials.Provider.
func (a asked) Retrieve() (credentials.Value, error) {
	return a.RetrieveWithCredContext(&credentials.CredContext{})
}

// IsExpired implements credentials.Provider.
func (asked) IsExpired() bool { return true }

// renews reports whether later requests may have other credentials.
func (b *bucket) renews() bool {
	return len(b.files) > 0 || b.opts.AccessKey == "" && b.opts.Credentials != CredentialsEnvironment
}

// renewal is the remedy for refused credentials.
func (b *bucket) renewal() string {
	if len(b.files) > 0 {
		return b.files.Rotation()
	}
	return "look after the source of the credentials (claim_check.s3.credentials: " + b.opts.Credentials + ")"
}
