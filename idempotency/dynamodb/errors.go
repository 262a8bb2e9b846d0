package dynamodb

import (
	"errors"
	"fmt"
	"strings"

	"github.com/aws/smithy-go"
)

// hints tell an operator the remedy for DynamoDB's errors, by their code.
var hints = map[string]string{
	"ResourceNotFoundException": "table %s is not there, in this account and region: create it, see package dynamodb's CreateTable and Schema",
	"ValidationException":       "table %s may have another key: see package dynamodb's Check",

	"ProvisionedThroughputExceededException": "table %s has not enough capacity: switch it to on-demand, or provision more; the key will be tried again",
	"RequestLimitExceeded":                   "the account's limit is reached: have it raised, the keys of table %s will be tried again",
	"ThrottlingException":                    "table %s is asked for more than it, or the account, may deliver now: on-demand tables grow within minutes",

	"AccessDeniedException":               "the role needs dynamodb:GetItem, PutItem and UpdateItem on table %s; to purge, Scan; to check, DescribeTable and DescribeTimeToLive",
	"UnrecognizedClientException":         "the credentials for table %s are not of this account or region, or were deleted",
	"ExpiredTokenException":               "the credentials for table %s ran out: use a provider that renews them, as package config of the AWS SDK does",
	"InvalidSignatureException":           "the secret key for table %s is wrong, or the local clock is",
	"MissingAuthenticationTokenException": "the client for table %s has no credentials",

	"ReplicatedWriteConflictException": "the key was written in another region at the same time; table %s will be tried again",
}

// credentialsFailed begins the SDK's error about missing credentials, an error
// without a type.
const credentialsFailed = "get credentials: "

const credentialsHint = "give the client of table %s credentials: a role, AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"

// explain adds the remedy to an error of the client.
func (s *Store) explain(err error) error { return explain(err, s.table) }

func explain(err error, table string) error {
	hint := ""
	if known, ok := errors.AsType[smithy.APIError](err); ok {
		hint = hints[known.ErrorCode()]
	} else if strings.Contains(err.Error(), credentialsFailed) {
		hint = credentialsHint
	}
	if hint == "" {
		return err
	}
	return fmt.Errorf("%w ("+hint+")", err, table)
}
