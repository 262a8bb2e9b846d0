package store

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
)

// longestTopic is the brokers' limit of a name, in characters.
const longestTopic = 249

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_]+(/[A-Za-z0-9_]+)?$`)

// Topic is the topic of the key's checkpoint, where checkpoint.topic is base. The topics of
// two keys always differ, and in more than dots and underscores: brokers refuse such pairs.
func Topic(base, key string) string {
	name := base + "." + strings.Replace(key, "/", "-", 1)
	if plainKey.MatchString(key) && len(name) <= longestTopic {
		return name
	}
	sum := sha256.Sum256([]byte(key))
	name = base + "." + regexp.MustCompile(`[^A-Za-z0-9_-]`).ReplaceAllString(key, "-")
	return name[:min(len(name), longestTopic-17)] + "-" + hex.EncodeToString(sum[:8])
}

// slotOf is the slot of the topic of a plain key database/slot, the default; "" of other topics.
func slotOf(base, topic string) string {
	key := strings.TrimPrefix(topic, base+".")
	database, slot, ok := strings.Cut(key, "-")
	if !ok || topic != Topic(base, database+"/"+slot) {
		return ""
	}
	return slot
}
