package claimcheck

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/setting"
)

// amazon is the endpoint by default.
const amazon = "https://s3.amazonaws.com"

// bucket keeps values as objects.
type bucket struct {
	opts   S3
	files  setting.Files // of opts
	http   *http.Transport
	client minio.Core
}

func newBucket(o S3, files setting.Files) (*bucket, error) {
	if err := o.TLS.Check(tlsPrefix); err != nil {
		return nil, err
	}
	transport := o.TLS.Transport(tlsPrefix)
	transport.MaxIdleConnsPerHost = 64 // as many as claim_check.parallel may be
	transport.IdleConnTimeout = 90 * time.Second
	endpoint := o.Endpoint
	if endpoint == "" {
		endpoint = amazon
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, err
	}
	client, err := minio.New(u.Host, &minio.Options{
		Creds:      credentialsOf(o, files),
		Secure:     u.Scheme == "https",
		Region:     o.region(),
		Transport:  transport,
		MaxRetries: 1, // the caller tries again, and tells of the wait
	})
	if err != nil {
		return nil, failure.Configf("correct claim_check.s3.endpoint", "claim store: %w", err)
	}
	return &bucket{opts: o, files: files, http: transport, client: minio.Core{Client: client}}, nil
}

func (b *bucket) close() { b.http.CloseIdleConnections() }

func (b *bucket) place(name string) string {
	return "s3://" + b.opts.Bucket + "/" + b.opts.Prefix + name
}

func (b *bucket) put(ctx context.Context, name, media string, value []byte) error {
	return b.write(ctx, b.opts.Prefix+name, media, value)
}

func (b *bucket) write(ctx context.Context, object, media string, value []byte) error {
	_, err := b.client.Client.PutObject(ctx, b.opts.Bucket, object, bytes.NewReader(value), int64(len(value)), minio.PutObjectOptions{
		ContentType:      media,
		DisableMultipart: true, // the object is there whole, or not at all
		SendContentMd5:   true, // buckets with an object lock require it
	})
	return b.explained("PUT", err)
}

func (b *bucket) get(ctx context.Context, place string, size int64) ([]byte, error) {
	object, ours := b.object(place)
	if !ours {
		return nil, errElsewhere
	}
	body, _, _, err := b.client.GetObject(ctx, b.opts.Bucket, object, minio.GetObjectOptions{})
	if minio.ToErrorResponse(err).Code == minio.NoSuchKey {
		return nil, errGone
	}
	if err != nil {
		return nil, b.explained("GET", err)
	}
	defer func() { _ = body.Close() }()
	value, err := io.ReadAll(io.LimitReader(body, size+1))
	return value, b.explained("GET", err)
}

// object is the name in a place; false: the place is of another bucket.
func (b *bucket) object(place string) (name string, ours bool) {
	return strings.CutPrefix(place, "s3://"+b.opts.Bucket+"/")
}

// renew writes the object again: lifecycle rules go by the time of the last write. Not all
// servers copy an object onto itself.
func (b *bucket) renew(ctx context.Context, place, media string, size int64) error {
	value, err := b.get(ctx, place, size)
	if err == nil && int64(len(value)) != size {
		err = errGone
	}
	if err != nil {
		return err
	}
	object, _ := b.object(place)
	return b.write(ctx, object, media, value)
}

func (b *bucket) remove(ctx context.Context, name string) error {
	return b.explained("DELETE", b.client.RemoveObject(ctx, b.opts.Bucket, b.opts.Prefix+name, minio.RemoveObjectOptions{}))
}

// reach asks for an object: neither its absence nor a missing right to read is in the way of
// values.
func (b *bucket) reach(ctx context.Context) error {
	body, _, _, err := b.client.GetObject(ctx, b.opts.Bucket, b.opts.Prefix+probeName, minio.GetObjectOptions{})
	if err == nil {
		return body.Close()
	}
	if code := minio.ToErrorResponse(err).Code; code == minio.NoSuchKey || code == minio.AccessDenied {
		return nil
	}
	return b.explained("GET", err)
}

// sweep does nothing: a bucket has lifecycle rules.
func (b *bucket) sweep(context.Context, time.Duration) (int, bool, error) { return 0, false, nil }

// explained gives an error of the library a class and a remedy.
func (b *bucket) explained(what string, err error) error {
	if err == nil {
		return nil
	}
	if failure.RemedyOf(err) != "" { // of the credentials' source
		return fmt.Errorf("claim store: %w", err)
	}
	answer, refused := errors.AsType[minio.ErrorResponse](err)
	if !refused || answer.StatusCode == 0 {
		return &failure.Error{Remedy: "start the claim store, or correct claim_check.s3.endpoint", Err: fmt.Errorf("claim store: %s in bucket %s: %w", what, b.opts.Bucket, err)}
	}
	err = fmt.Errorf("claim store: %s in bucket %s: %s: %s", what, b.opts.Bucket, answer.Code, strings.ToValidUTF8(answer.Message, "·"))
	return b.class(answer, err)
}
