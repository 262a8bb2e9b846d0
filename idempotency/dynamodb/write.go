package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/cdc-outbox/cdc-outbox/idempotency/storage"
)

// errNoDate says that the server's time cannot be had.
var errNoDate = errors.New("the answers of DynamoDB carry no header Date, by which leases are timed: " +
	"use the AWS SDK's client, or a wrapper that keeps the metadata of its outputs")

// now returns the server's time. now makes a call, a read of the key, only if
// there was no answer within maxAge.
func (s *Store) now(ctx context.Context, key storage.Key) (instant, error) {
	if now, ok := s.clock.read(); ok {
		return now, nil
	}
	_, now, err := s.look(ctx, key)
	return now, err
}

// look reads the record, consistently, and the server's time.
func (s *Store) look(ctx context.Context, key storage.Key) (item, instant, error) {
	sent := s.clock.local()
	out, err := s.client.GetItem(ctx, &sdk.GetItemInput{
		TableName:      &s.table,
		Key:            attributes{attrKey: text(key.String())},
		ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return item{}, instant{}, s.explain(err)
	}
	s.observe(out.ResultMetadata, sent)
	now, ok := s.clock.read()
	if !ok {
		return item{}, instant{}, errNoDate
	}
	current, err := decode(key, out.Item)
	return current, now, err
}

// replace writes next in place of current, unless something else was written
// since current was read: then nothing is written and the present record
// returned.
func (s *Store) replace(ctx context.Context, current item, next storage.Record, now instant) (found item, done bool, err error) {
	version := storage.NewOwner()
	in := &sdk.PutItemInput{
		TableName:                           &s.table,
		Item:                                encode(next, version),
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
	e := expression{}
	if current.version == "" {
		// No record, or a forgotten one: DynamoDB deletes such a record days later.
		// The fence, made of the time, is compared because of different estimates.
		in.ConditionExpression = aws.String(fmt.Sprintf("attribute_not_exists(%s) OR (%s <= %s AND %s < %s)",
			e.name(attrKey), e.name(attrExpiresAt), e.value("now", instantNumber(now.earliest)),
			e.name(attrFence), e.value("next", number(next.Fence))))
	} else {
		in.ConditionExpression = aws.String(e.equals(attrVersion, text(current.version)))
	}
	in.ExpressionAttributeNames, in.ExpressionAttributeValues = e.names, e.values
	sent := s.clock.local()
	out, err := s.client.PutItem(ctx, in)
	if err != nil {
		return s.refused(ctx, err, next.Key, version, sent)
	}
	s.observe(out.ResultMetadata, sent)
	return item{}, true, nil
}

// update writes the named attributes of next, on the condition that next's
// owner has the key: the last claim is the owner's, not settled and not
// forgotten. Otherwise nothing is written and the present record returned.
func (s *Store) update(ctx context.Context, next storage.Record, changes []string, now instant) (found item, done bool, err error) {
	version := storage.NewOwner()
	e := expression{}
	conditions := []string{
		e.equals(attrState, text(storage.Processing.String())),
		e.equals(attrOwner, text(next.Owner)),
		e.equals(attrFence, number(next.Fence)),
		fmt.Sprintf("%s > %s", e.name(attrExpiresAt), e.value("now", instantNumber(now.earliest))),
	}
	if next.State == storage.Processing { // extended: within the record's life
		conditions = append(conditions,
			fmt.Sprintf("%s >= %s", e.name(attrExpiresAt), e.value("lease_end", instantNumber(next.LeaseUntil))))
	}
	all := encode(next, version)
	var set, remove []string
	for _, name := range append([]string{attrVersion}, changes...) {
		if v, ok := all[name]; ok {
			set = append(set, e.name(name)+" = "+e.value("new_"+name, v))
		} else {
			remove = append(remove, e.name(name))
		}
	}
	update := "SET " + strings.Join(set, ", ")
	if len(remove) > 0 {
		update += " REMOVE " + strings.Join(remove, ", ")
	}
	sent := s.clock.local()
	out, err := s.client.UpdateItem(ctx, &sdk.UpdateItemInput{
		TableName:                           &s.table,
		Key:                                 attributes{attrKey: all[attrKey]},
		UpdateExpression:                    &update,
		ConditionExpression:                 aws.String(strings.Join(conditions, " AND ")),
		ExpressionAttributeNames:            e.names,
		ExpressionAttributeValues:           e.values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	if err != nil {
		return s.refused(ctx, err, next.Key, version, sent)
	}
	s.observe(out.ResultMetadata, sent)
	return item{}, true, nil
}

// refused returns the record after a failed condition. The record may be ours:
// the SDK repeats a request after a lost answer. Without a record in the
// refusal, a read follows: the record is gone, or an emulator ignores
// ReturnValuesOnConditionCheckFailure.
func (s *Store) refused(ctx context.Context, err error, key storage.Key, version string, sent reading) (found item, done bool, _ error) {
	failed, ok := errors.AsType[*types.ConditionalCheckFailedException](err)
	if !ok {
		return item{}, false, s.explain(err)
	}
	if answer, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
		if date, err := smithyhttp.ParseTime(answer.Response.Header.Get("Date")); err == nil {
			s.clock.observe(date, sent)
		}
	}
	if len(failed.Item) == 0 {
		found, _, err = s.look(ctx, key)
	} else {
		found, err = decode(key, failed.Item)
	}
	return found, err == nil && found.version == version, err
}

func (s *Store) observe(answer middleware.Metadata, sent reading) {
	if date, ok := awsmiddleware.GetServerTime(answer); ok {
		s.clock.observe(date, sent)
	}
}

// expression collects an expression's names and values; many of our names are
// reserved words.
type expression struct {
	names  map[string]string
	values attributes
}

func (e *expression) name(attribute string) string {
	if e.names == nil {
		e.names = map[string]string{}
	}
	e.names["#"+attribute] = attribute
	return "#" + attribute
}

func (e *expression) value(name string, v types.AttributeValue) string {
	if e.values == nil {
		e.values = attributes{}
	}
	e.values[":"+name] = v
	return ":" + name
}

func (e *expression) equals(attribute string, v types.AttributeValue) string {
	return e.name(attribute) + " = " + e.value(attribute, v)
}

// list returns the names of attributes, for a projection.
func (e *expression) list(attributes ...string) string {
	used := map[string]bool{}
	for _, a := range attributes {
		used[e.name(a)] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(used)), ", ")
}
