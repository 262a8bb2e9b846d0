package claimcheck

import (
	"net/http"

	"github.com/minio/minio-go/v7"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/transform"
)

// rights are all that the connector and check do with a bucket. Amazon refuses to say that an
// object is missing where the right to list the bucket is.
const rights = "s3:PutObject; for redrive, replay of a topic and the quarantine s3:GetObject and s3:ListBucket; for check s3:DeleteObject"

// class judges an answer by the code, or else by the status.
func (b *bucket) class(answer minio.ErrorResponse, err error) error {
	transient := func(remedy string) error { return &failure.Error{Remedy: remedy, Err: err} }
	config := func(remedy string) error { return failure.Configf(remedy, "%w", err) }
	switch answer.Code {
	case minio.NoSuchBucket:
		return config("create bucket " + b.opts.Bucket + ", or correct claim_check.s3.bucket")
	case minio.RequestTimeTooSkewed:
		return transient("set this machine's clock")
	case "ExpiredToken", "TokenRefreshRequired":
		if b.renews() {
			return transient(b.renewal())
		}
		return config("renew claim_check.s3.access_key, secret_key and session_token")
	case minio.InvalidAccessKeyID, minio.SignatureDoesNotMatch, "InvalidToken":
		if b.renews() {
			return transient(b.renewal())
		}
		return config("correct the credentials (claim_check.s3.credentials: " + b.opts.Credentials + ")")
	case minio.AuthorizationHeaderMalformed, minio.InvalidRegion, "PermanentRedirect", "IllegalLocationConstraintException":
		return config("set claim_check.s3.region to the bucket's region, and endpoint to the one of the region")
	case minio.EntityTooLarge:
		return &transform.BadEvent{Reason: transform.ReasonRecordTooLarge, Err: failure.Configf("raise the claim store's limit of an object's size", "%w", err)}
	}
	switch status := answer.StatusCode; {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return config("give the credentials (claim_check.s3.credentials: " + b.opts.Credentials + ") rights in bucket " + b.opts.Bucket + ": " + rights)
	case status == http.StatusTooManyRequests || status == http.StatusRequestTimeout || status == http.StatusConflict:
		return transient("raise the claim store's limit of requests, or lower claim_check.parallel")
	case status >= http.StatusInternalServerError:
		return transient("look at the claim store's log, and at its disks")
	}
	return config("correct claim_check.s3")
}
