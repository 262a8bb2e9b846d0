// Package redis keeps idempotency keys in Redis.
package redis
