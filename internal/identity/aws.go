package identity

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
)

// AWSCredentials sign requests to Amazon's services.
type AWSCredentials struct {
	AccessKey    string
	SecretKey    string // secret
	SessionToken string // secret; "": those of a user, not of a role
	Ends         time.Time
}

// AWS returns the credentials of the workload, from the first of:
// AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; a web identity
// (AWS_WEB_IDENTITY_TOKEN_FILE, AWS_ROLE_ARN), by STS; a container's source
// (AWS_CONTAINER_CREDENTIALS_FULL_URI or _RELATIVE_URI: EKS Pod Identity, ECS);
// the profile AWS_PROFILE of AWS's files; the machine's metadata (IMDSv2). The
// environment and its files are read at each question. AWS blocks for
// answerTimeout at the most. Several goroutines may use it.
func AWS(ctx context.Context) (AWSCredentials, error) {
	return workload.get(ctx, environment(awsVariables))
}

// workload is the process's, as its environment is.
var workload = newKept(askAWS, time.Now)

// awsVariables say where the credentials come from.
var awsVariables = []string{
	"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
	"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN", "AWS_ROLE_SESSION_NAME", "AWS_REGION", "AWS_ENDPOINT_URL_STS",
	"AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
	"AWS_CONTAINER_AUTHORIZATION_TOKEN", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
	"AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "AWS_EC2_METADATA_SERVICE_ENDPOINT",
}

// source is where credentials come from.
type source struct {
	what, remedy string
	provider     credentials.Provider
}

func askAWS(ctx context.Context) (AWSCredentials, time.Time, error) {
	s := awsSource()
	got, err := s.provider.RetrieveWithCredContext(&credentials.CredContext{Client: client, Context: ctx})
	if err == nil && (got.AccessKeyID == "" || got.SecretAccessKey == "") {
		err = errors.New("there is no access key, or no secret")
	}
	if answer, ok := errors.AsType[credentials.ErrorResponse](err); ok {
		err = errors.New(answer.STSError.Code + ": " + answer.STSError.Message)
	}
	if err != nil {
		return AWSCredentials{}, time.Time{}, unavailable(s.remedy, s.what, cause(ctx, err))
	}
	return AWSCredentials{AccessKey: got.AccessKeyID, SecretKey: got.SecretAccessKey, SessionToken: got.SessionToken, Ends: got.Expiration}, got.Expiration, nil
}

// awsSource chooses as AWS's own clients do.
func awsSource() source {
	switch {
	case os.Getenv("AWS_ACCESS_KEY_ID") != "" && os.Getenv("AWS_SECRET_ACCESS_KEY") != "":
		return source{provider: &credentials.EnvAWS{}}
	case os.Getenv("AWS_WEB_IDENTITY_TOKEN_FILE") != "":
		return source{
			what:     "ask AWS STS for the credentials of " + cmp.Or(os.Getenv("AWS_ROLE_ARN"), "a role (AWS_ROLE_ARN is not set)"),
			remedy:   "have the role AWS_ROLE_ARN trust the service account whose token is AWS_WEB_IDENTITY_TOKEN_FILE, and let the connector reach STS (or set AWS_ENDPOINT_URL_STS)",
			provider: &credentials.IAM{Endpoint: os.Getenv("AWS_ENDPOINT_URL_STS")},
		}
	case os.Getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI") != "" || os.Getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") != "":
		return source{
			what:     "ask the container's source of AWS credentials",
			remedy:   "associate a role with the service account (EKS Pod Identity) or the task (ECS), and look at the agent at AWS_CONTAINER_CREDENTIALS_FULL_URI",
			provider: &credentials.IAM{},
		}
	case profiled():
		return source{
			what:     "read AWS credentials of profile " + cmp.Or(os.Getenv("AWS_PROFILE"), "default"),
			remedy:   "correct AWS_PROFILE, or the files ~/.aws/credentials and ~/.aws/config",
			provider: &credentials.FileAWSCredentials{},
		}
	}
	return source{
		what: "ask the machine's metadata service (IMDS) for AWS credentials",
		remedy: "give the workload a role (IRSA, EKS Pod Identity, an ECS task role, an instance profile with a hop limit of 2 for containers), " +
			"or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
		provider: &credentials.IAM{Endpoint: strings.TrimSuffix(os.Getenv("AWS_EC2_METADATA_SERVICE_ENDPOINT"), "/")},
	}
}

// profiled tells whether AWS's files are there.
func profiled() bool {
	if os.Getenv("AWS_PROFILE") != "" {
		return true
	}
	home, _ := os.UserHomeDir()
	file := cmp.Or(os.Getenv("AWS_SHARED_CREDENTIALS_FILE"), filepath.Join(home, ".aws", "credentials"))
	_, err := os.Stat(file)
	return err == nil
}
