package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/cdc-outbox/cdc-outbox/internal/base/failure"
	"github.com/cdc-outbox/cdc-outbox/internal/catalog"
	"github.com/cdc-outbox/cdc-outbox/internal/kafkalog"
)

// While a Kafka transaction is open in a topic, nobody can tell what the last
// checkpoint behind it is. So pipelines that write checkpoints in transactions
// have a topic each. Invariants:
//
//  1. A pipeline's own topic goes before the shared one. The shared one is asked
//     only while there is no record under the key in the own one, or one that says
//     that the note is pending.
//  2. The slot's holder first saves what it found in the shared topic to its own, as
//     a checkpoint whose note is pending, and then leaves a note in the shared one.
//     Only after that do further events count. So whoever reads the one or the other
//     topic begins at the same position, or finds the note. If the holder dies before
//     it leaves the note, a program that knows the shared topic alone may go on there:
//     as long as there is no note, what that saves counts, if its epoch is later than
//     that of the checkpoint found. A holder from before may write one that is not.
//  3. Who finds the note goes on in the topic that it names. An older program
//     refuses the note: it has a format that it does not know.
//  4. A note that leads to a topic without a checkpoint is a loss: there was one.

// longestTopic is the most characters that brokers take for a name.
const longestTopic = 249

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_]+(/[A-Za-z0-9_]+)?$`)

// OwnTopic is the topic of the key alone, beside the shared one. Two keys never
// have the same, nor two that differ only in dots and underscores, which brokers
// refuse.
func OwnTopic(shared, key string) string {
	name := shared + "." + strings.Replace(key, "/", "-", 1)
	if plainKey.MatchString(key) && len(name) <= longestTopic {
		return name
	}
	sum := sha256.Sum256([]byte(key))
	name = shared + "." + regexp.MustCompile(`[^A-Za-z0-9_-]`).ReplaceAllString(key, "-")
	return name[:min(len(name), longestTopic-17)] + "-" + hex.EncodeToString(sum[:8])
}

// ErrGone is wrapped by the error of a load of a checkpoint that was in the
// store, and is not there any more. It is a loss.
var ErrGone = errors.New("it was deleted or emptied")

// place is the topic that the checkpoint is saved to.
func (k *kafka) place() string {
	if moved := k.moved.Load(); moved != nil {
		return *moved
	}
	return k.topic
}

// locate finds the checkpoint, in the topic, in the former one or where a note
// says it is.
func (k *kafka) locate(ctx context.Context) (found, error) {
	own, err := k.read(ctx, k.topic)
	switch {
	case err != nil:
		return own, err
	case own.ok && own.pending == nil, k.former == "" && own.moved == "":
		k.moved.Store(nil)
		k.pending.Store(nil)
		return own, nil
	case own.moved != "":
		return k.follow(ctx, k.topic, own.moved)
	case !own.ok && !own.nothing: // it was forgotten
		return own, nil
	}
	exists, err := k.formerExists(ctx)
	if err != nil {
		return found{}, err
	}
	shared := found{nothing: true}
	if exists {
		if shared, err = k.read(ctx, k.former); err != nil {
			return found{}, err
		}
	}
	if shared.moved != "" {
		k.pending.Store(nil)
		return k.follow(ctx, k.former, shared.moved)
	}
	f, since := own, own.pending
	switch {
	case shared.ok && (own.nothing || shared.Epoch > *own.pending):
		f, since = shared, &shared.Epoch
		f.Epoch = max(f.Epoch, own.Epoch) // so that what is saved next replaces the own one
	case own.nothing, !shared.ok && !shared.nothing: // nobody has one, or it was forgotten there
		f, since = found{}, new(int64)
	}
	k.left.Store(false)
	k.pending.Store(since)
	return f, nil
}

// follow reads the topic that a note names.
func (k *kafka) follow(ctx context.Context, from, to string) (found, error) {
	f, err := k.read(ctx, to)
	if err == nil && !f.ok {
		err = failure.Lossf("find out what became of it; then "+catalog.AcceptGap,
			"checkpoint topic %s says that the checkpoint is in topic %s, which has none: %w", from, to, ErrGone)
	}
	if err != nil {
		return found{}, err
	}
	if to != k.topic {
		k.moved.Store(&to)
	}
	return f, nil
}

// formerExists tells whether there is a former topic. It asks for both topics at
// once: a broker that has just started may know none yet.
func (k *kafka) formerExists(ctx context.Context) (exists bool, err error) {
	err = untilKnown(ctx, topicPatience, func(ctx context.Context) error {
		topics, err := k.admin.ListTopics(ctx, k.topic, k.former)
		if err != nil {
			return err
		}
		if err := kafkalog.Usable(topics[k.topic], 0); err != nil {
			return err
		}
		err = kafkalog.Usable(topics[k.former], 0)
		exists = err == nil
		if errors.Is(err, kerr.UnknownTopicOrPartition) {
			return nil
		}
		return err
	})
	if err != nil {
		err = fmt.Errorf("checkpoint topic %s: %w", k.former, k.classify(k.former, err, "Describe"))
	}
	return exists, err
}

// Leave implements Marker.
func (k *kafka) Leave(ctx context.Context) error {
	if k.former == "" || k.left.Load() {
		return nil
	}
	exists, err := k.formerExists(ctx)
	if err == nil && !exists { // or a later at-least-once start would find nothing there, and begin without a checkpoint
		if err = k.ensureTopic(ctx, k.former); err != nil {
			err = fmt.Errorf("checkpoint topic %s: %w", k.former, err)
		}
	}
	if err == nil {
		err = k.note(ctx)
	}
	if err == nil {
		k.left.Store(true)
		k.pending.Store(nil)
	}
	return err
}

// note makes the note the last record under the key in the former topic.
func (k *kafka) note(ctx context.Context) error {
	f, err := k.read(ctx, k.former)
	switch {
	case errors.Is(err, kafkalog.ErrOpenTransaction): // of another pipeline: behind it a second note does no harm
	case err != nil || f.moved == k.place():
		return err
	}
	value, err := encodeMoved(k.place())
	if err == nil {
		err = k.write(ctx, k.former, value)
	}
	if err != nil {
		return fmt.Errorf("note in topic %s that the checkpoint is in topic %s now: %w", k.former, k.place(), err)
	}
	return nil
}

// places are the topics that may know the key.
func (k *kafka) places(ctx context.Context) ([]string, error) {
	topics := []string{k.place()}
	if k.place() != k.topic {
		topics = append(topics, k.topic)
	}
	if k.former == "" {
		return topics, nil
	}
	exists, err := k.formerExists(ctx)
	if exists {
		topics = append(topics, k.former)
	}
	return topics, err
}
