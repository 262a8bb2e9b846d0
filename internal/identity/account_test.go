package identity

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/cloud"
	"github.com/cdc-outbox/cdc-outbox/internal/lab/must"
)

func TestGoogleAccount(t *testing.T) {
	for name, tt := range map[string]struct{ file, variable, want string }{
		"of the machine":       {"", "", cloud.Account},
		"of a key":             {`{"type":"service_account","client_email":"key@p"}`, "", "key@p"},
		"of another identity":  {`{"type":"external_account","service_account_impersonation_url":"https://h/v1/projects/-/serviceAccounts/ext@p:generateAccessToken"}`, "", "ext@p"},
		"of no account":        {`{"type":"external_account"}`, "", ""},
		"of no account, named": {`{"type":"external_account"}`, "named@p", "named@p"},
		"of half a file":       {`{"type":`, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := cloud.New(t)
			c.ServiceAccount(t)
			if tt.file != "" {
				file := filepath.Join(t.TempDir(), "key.json")
				must.OK(t, os.WriteFile(file, []byte(tt.file), 0o600))
				t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", file)
			}
			t.Setenv("GOOGLE_MANAGED_KAFKA_AUTH_PRINCIPAL", tt.variable)
			got, err := GoogleAccount(t.Context())
			if got != tt.want || (err != nil) != (tt.want == "") || err != nil && failure.RemedyOf(err) == "" {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}
