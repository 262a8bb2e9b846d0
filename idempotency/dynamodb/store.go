package dynamodb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/cdc-outbox/cdc-outbox/idempotency/internal/usercode"
	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// Client is the part of the AWS SDK's *dynamodb.Client that a Store needs. Its
// retries may stay as they are: a write carried out although the answer was
// lost is recognised.
type Client interface {
	GetItem(context.Context, *sdk.GetItemInput, ...func(*sdk.Options)) (*sdk.GetItemOutput, error)
	PutItem(context.Context, *sdk.PutItemInput, ...func(*sdk.Options)) (*sdk.PutItemOutput, error)
	UpdateItem(context.Context, *sdk.UpdateItemInput, ...func(*sdk.Options)) (*sdk.UpdateItemOutput, error)
	// Scan is used by Purge only.
	Scan(context.Context, *sdk.ScanInput, ...func(*sdk.Options)) (*sdk.ScanOutput, error)
	// The others are used by Check and CreateTable only.
	DescribeTable(context.Context, *sdk.DescribeTableInput, ...func(*sdk.Options)) (*sdk.DescribeTableOutput, error)
	DescribeTimeToLive(context.Context, *sdk.DescribeTimeToLiveInput, ...func(*sdk.Options)) (*sdk.DescribeTimeToLiveOutput, error)
	CreateTable(context.Context, *sdk.CreateTableInput, ...func(*sdk.Options)) (*sdk.CreateTableOutput, error)
	UpdateTimeToLive(context.Context, *sdk.UpdateTimeToLiveInput, ...func(*sdk.Options)) (*sdk.UpdateTimeToLiveOutput, error)
}

// defaultMargin is Options.Margin unless set.
const defaultMargin = time.Second

var errNoTable = errors.New("make idempotency store: the name of the table is missing")

// Options of New and Schema.
type Options struct {
	// Table is the table's name. Required.
	Table string
	// Margin is how far the clocks of DynamoDB's own servers may be apart: all
	// times ending somebody's right are put off by so much. A second if 0, none if
	// negative.
	Margin time.Duration
	// Now is the local clock, used for differences only; time.Now if nil.
	Now func() time.Time
}

// Store is a storage.Store and Operator in a table of DynamoDB. Its methods
// block for the calls they make, one unless their comment says otherwise, and
// are safe for concurrent use. Make one with New.
type Store struct {
	client Client
	table  string
	margin time.Duration
	clock  clock
}

var (
	_ storage.Store    = (*Store)(nil)
	_ storage.Operator = (*Store)(nil)
	_ storage.Checker  = (*Store)(nil)
)

// New returns a store in the table, which must be as CreateTable makes it;
// Check verifies that. New makes no call yet. The client stays the caller's,
// and must not be DAX's, which caches.
func New(client Client, o Options) (*Store, error) {
	switch {
	case usercode.IsNil(client):
		return nil, errors.New("make idempotency store: a DynamoDB client is required")
	case o.Table == "":
		return nil, errNoTable
	}
	o.Margin = cmp.Or(o.Margin, defaultMargin)
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Store{
		client: client, table: o.Table, margin: max(o.Margin, 0),
		clock: clock{local: readings(o.Now), resolution: dateResolution, drift: maxDrift},
	}, nil
}

// Claim implements storage.Store: a single call for a new key and for a
// duplicate, two for a key claimed again. A lease lasts longer for others than
// for the holder: by Options.Margin, and by how little either knows of the
// server's clock, a second and a round trip each at most.
func (s *Store) Claim(ctx context.Context, key storage.Key, req storage.ClaimRequest) (storage.Claim, error) {
	if err := key.Validate(); err != nil {
		return storage.Claim{}, err
	}
	if err := req.Validate(); err != nil {
		return storage.Claim{}, err
	}
	// Most keys are new: the others come back with the refusal.
	current := item{record: storage.Record{Key: key}}
	for {
		now, err := s.now(ctx, key)
		if err != nil {
			return storage.Claim{}, fmt.Errorf("claim %s: %w", key, err)
		}
		padded := req
		padded.Lease, padded.Retention = s.pad(req.Lease, now), s.pad(req.Retention, now)
		next, claim, err := due(current.record).Claim(now.earliest, padded)
		if err != nil || claim.Outcome != storage.Claimed {
			return claim, err
		}
		found, done, err := s.replace(ctx, current, next, now)
		switch {
		case err != nil:
			return storage.Claim{}, fmt.Errorf("claim %s: %w", key, err)
		case done:
			return claim, nil
		}
		current = found
	}
}

// Inspect implements storage.Store, by a consistent read.
func (s *Store) Inspect(ctx context.Context, key storage.Key) (storage.Record, error) {
	if err := key.Validate(); err != nil {
		return storage.Record{}, err
	}
	current, now, err := s.look(ctx, key)
	if err != nil {
		return storage.Record{}, fmt.Errorf("inspect %s: %w", key, err)
	}
	return current.record.At(now.earliest), nil
}

// pad lengthens a duration by the store's possible error about the time, so
// that nobody takes it for over too soon.
func (s *Store) pad(d time.Duration, now instant) time.Duration {
	pad := now.latest.Sub(now.earliest) + s.margin
	if d > math.MaxInt64-pad {
		return math.MaxInt64
	}
	return d + pad
}

// due returns the record so that a Retryable key due at once is due by every
// estimate of the time.
func due(r storage.Record) storage.Record {
	if r.State == storage.Retryable && !r.RetryAt.After(r.UpdatedAt) {
		r.RetryAt = time.Time{}
	}
	return r
}
