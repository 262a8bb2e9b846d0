// Package s3 reads values that the connector keeps in storage with Amazon's S3 protocol
// (claim_check.store: s3).
package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/cdc-outbox/cdc-outbox/idempotency/claimcheck"
)

var _ claimcheck.Store = (*Store)(nil)

// Store is the claimcheck.Store of a bucket.
type Store struct {
	core   minio.Core
	bucket string
}

// New reads from the bucket, claim_check.s3.bucket. The client's credentials need s3:GetObject
// and, to tell a missing value from a missing right, the right to list the bucket. New asks nobody.
func New(client *minio.Client, bucket string) (*Store, error) {
	if client == nil || bucket == "" {
		return nil, errors.New("the claim store needs a client and a bucket")
	}
	return &Store{minio.Core{Client: client}, bucket}, nil
}

// Open implements claimcheck.Store.
func (s *Store) Open(ctx context.Context, place string) (io.ReadCloser, error) {
	key, ours := strings.CutPrefix(place, "s3://"+s.bucket+"/")
	if !ours {
		return nil, fmt.Errorf("%w: the bucket here is %s", claimcheck.ErrElsewhere, s.bucket)
	}
	body, _, _, err := s.core.GetObject(ctx, s.bucket, key, minio.GetObjectOptions{})
	if minio.ToErrorResponse(err).Code == minio.NoSuchKey {
		return nil, claimcheck.ErrGone
	}
	if err != nil {
		return nil, err
	}
	return body, nil
}
