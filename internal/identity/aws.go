package identity

import (
	"cmp"
	"context"
	"errors"
	"os"
	"strings"
	"sync"
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
func AWS(ctx context.Context) (AWSCredentials, error) { return AWSSource{}.Credentials(ctx) }

// AWSSource is where credentials come from: the first of AWS's sources, unless a member is set.
type AWSSource struct {
	// Role leaves out variables and files with keys.
	Role bool
	// File is AWS's files, or the file Path, with the profile Profile, or else AWS_PROFILE.
	File          bool
	Path, Profile string
}

// workloads are the process's, as its environment is.
var workloads = struct {
	sync.Mutex
	by map[AWSSource]*kept[AWSCredentials]
}{by: map[AWSSource]*kept[AWSCredentials]{}}

// Credentials returns credentials of the source, as AWS does.
func (s AWSSource) Credentials(ctx context.Context) (AWSCredentials, error) {
	workloads.Lock()
	k := workloads.by[s]
	if k == nil {
		k = newKept(s.asker(), time.Now)
		workloads.by[s] = k
	}
	workloads.Unlock()
	return k.get(ctx, environment(awsVariables))
}

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
	name, what, remedy string
	provider           interface {
		RetrieveWithCredContext(*credentials.CredContext) (credentials.Value, error)
	}
}

// asker returns a question to the source, for a single goroutine at a time.
func (s AWSSource) asker() func(context.Context) (AWSCredentials, time.Time, error) {
	files := &profile{of: credentials.FileAWSCredentials{Filename: s.Path, Profile: s.Profile}}
	return func(ctx context.Context) (AWSCredentials, time.Time, error) { return s.choose(files).ask(ctx) }
}

func (s source) ask(ctx context.Context) (AWSCredentials, time.Time, error) {
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

// choose chooses as AWS's own clients do.
func (s AWSSource) choose(files *profile) source {
	switch {
	case s.File:
		return files.source()
	case !s.Role && os.Getenv("AWS_ACCESS_KEY_ID") != "" && os.Getenv("AWS_SECRET_ACCESS_KEY") != "":
		return source{name: "AWS access key " + os.Getenv("AWS_ACCESS_KEY_ID"), provider: &credentials.EnvAWS{}}
	case os.Getenv("AWS_WEB_IDENTITY_TOKEN_FILE") != "":
		return source{
			name:     "AWS role " + os.Getenv("AWS_ROLE_ARN") + " (web identity)",
			what:     "ask AWS STS for the credentials of " + cmp.Or(os.Getenv("AWS_ROLE_ARN"), "a role (AWS_ROLE_ARN is not set)"),
			remedy:   "have the role AWS_ROLE_ARN trust the service account whose token is AWS_WEB_IDENTITY_TOKEN_FILE, and let the connector reach STS (or set AWS_ENDPOINT_URL_STS)",
			provider: &credentials.IAM{Endpoint: os.Getenv("AWS_ENDPOINT_URL_STS")},
		}
	case os.Getenv("AWS_CONTAINER_CREDENTIALS_FULL_URI") != "" || os.Getenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") != "":
		return source{
			name:     "AWS role of the container",
			what:     "ask the container's source of AWS credentials",
			remedy:   "associate a role with the service account (EKS Pod Identity) or the task (ECS), and look at the agent at AWS_CONTAINER_CREDENTIALS_FULL_URI",
			provider: &credentials.IAM{},
		}
	case !s.Role && profiled():
		return files.source()
	}
	return source{
		name: "AWS role of the machine",
		what: "ask the machine's metadata service (IMDS) for AWS credentials",
		remedy: "give the workload a role (IRSA, EKS Pod Identity, an ECS task role, an instance profile with a hop limit of 2 for containers), " +
			"or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
		provider: &credentials.IAM{Endpoint: strings.TrimSuffix(os.Getenv("AWS_EC2_METADATA_SERVICE_ENDPOINT"), "/")},
	}
}
