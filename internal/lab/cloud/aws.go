package cloud

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// WebIdentity makes the process a pod with a role of its service account (IRSA).
func (c *Cloud) WebIdentity(t *testing.T) {
	t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", c.TokenFile())
	t.Setenv("AWS_ROLE_ARN", RoleARN)
	t.Setenv("AWS_ENDPOINT_URL_STS", c.URL+"/sts/")
}

// PodIdentity makes the process a pod of EKS Pod Identity.
func (c *Cloud) PodIdentity(t *testing.T) {
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", c.URL+"/v1/credentials")
	t.Setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", c.TokenFile())
}

// Instance makes the process a program on a machine with a role.
func (c *Cloud) Instance(t *testing.T) { t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", c.URL) }

// sts answers AssumeRoleWithWebIdentity.
func (c *Cloud) sts(w http.ResponseWriter, r *http.Request) {
	fail := func(status int, code, message string) {
		w.Header().Set("Content-Type", "text/xml")
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type><Code>%s</Code><Message>%s</Message></Error><RequestId>1</RequestId></ErrorResponse>`, code, message)
	}
	switch {
	case r.FormValue("Action") != "AssumeRoleWithWebIdentity" || r.FormValue("Version") != "2011-06-15":
		fail(http.StatusBadRequest, "InvalidAction", "Could not find operation")
	case r.FormValue("RoleSessionName") == "":
		fail(http.StatusBadRequest, "ValidationError", "roleSessionName is missing")
	case r.FormValue("RoleArn") != RoleARN:
		fail(http.StatusForbidden, "AccessDenied", "Not authorized to perform sts:AssumeRoleWithWebIdentity")
	case !c.holder(r.FormValue("WebIdentityToken")):
		fail(http.StatusBadRequest, "InvalidIdentityToken", "The web identity token is not the service account's")
	default:
		k := c.issue()
		w.Header().Set("Content-Type", "text/xml")
		_, _ = fmt.Fprintf(w, `<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>%s</AccessKeyId><SecretAccessKey>%s</SecretAccessKey><SessionToken>%s</SessionToken><Expiration>%s</Expiration></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`,
			k.AccessKey, k.Secret, k.Session, k.Ends.UTC().Format(time.RFC3339Nano))
	}
}

// imdsSession is the token of IMDSv2; IMDSv1 had none.
const imdsSession = "imds-session"

func (c *Cloud) imdsToken(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("X-aws-ec2-metadata-token-ttl-seconds") == "" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	_, _ = w.Write([]byte(imdsSession))
}

func (c *Cloud) imds(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Header.Get("X-aws-ec2-metadata-token") != imdsSession:
		w.WriteHeader(http.StatusUnauthorized)
	case strings.HasSuffix(r.URL.Path, "/security-credentials/"):
		_, _ = w.Write([]byte("cdc-role"))
	default:
		c.roleCredentials(w)
	}
}

// container is for EKS Pod Identity and ECS.
func (c *Cloud) container(w http.ResponseWriter, r *http.Request) {
	if !c.holder(r.Header.Get("Authorization")) {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	c.roleCredentials(w)
}

func (c *Cloud) roleCredentials(w http.ResponseWriter) {
	k := c.issue()
	reply(w, http.StatusOK, map[string]any{"Code": "Success", "Type": "AWS-HMAC",
		"AccessKeyId": k.AccessKey, "SecretAccessKey": k.Secret, "Token": k.Session, "Expiration": k.Ends.UTC().Format(time.RFC3339Nano)})
}
