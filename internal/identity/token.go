package identity

import (
	"context"
	"sync"
	"time"
)

// Token is an access token.
type Token struct {
	Value string // secret
	Ends  time.Time
}

// tokens keeps the tokens of a cloud, each for one scope. Several goroutines may
// use tokens.
type tokens struct {
	ask func(ctx context.Context, scope string) (Token, error)
	now func() time.Time

	mu   sync.Mutex
	kept map[string]*kept[Token]
}

func newTokens(ask func(context.Context, string) (Token, error), now func() time.Time) *tokens {
	return &tokens{ask: ask, now: now, kept: map[string]*kept[Token]{}}
}

func (s *tokens) get(ctx context.Context, scope, source string) (Token, error) {
	s.mu.Lock()
	k := s.kept[scope]
	if k == nil {
		k = newKept(func(ctx context.Context) (Token, time.Time, error) {
			token, err := s.ask(ctx, scope)
			return token, token.Ends, err
		}, s.now)
		s.kept[scope] = k
	}
	s.mu.Unlock()
	return k.get(ctx, source)
}
