package natsbus

import (
	"context"
	"errors"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/pkg/events"
)

// ---- Sessions.

// keyOf makes a key for a bucket of any text.
func keyOf(s string) string {
	s = strings.NewReplacer("%", "=", "~", "=7E", ":", "=3A", "@", "=40", "+", "=2B", ",", "=2C", "=", "=3D").Replace(events.EncodeToken(s))
	if len(s) <= maxConsumerName {
		return s
	}
	h := fnv.New64a()
	h.Write([]byte(s))
	return s[:maxConsumerName-17] + "_" + strconv.FormatUint(h.Sum64(), 16)
}

// Claim implements bus.Sessions.
func (b *Bus) Claim(ctx context.Context, session, worker string) (string, error) {
	key := keyOf(session)
	for range 8 { // others may be as quick
		_, err := b.sessions.Create(ctx, key, []byte(worker))
		if err == nil {
			return worker, nil
		}
		if !errors.Is(err, jetstream.ErrKeyExists) {
			return "", problem("claim session "+session, err)
		}
		e, err := b.sessions.Get(ctx, key)
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			continue // it has just ended
		}
		if err != nil {
			return "", problem("claim session "+session, err)
		}
		if string(e.Value()) != worker {
			return string(e.Value()), nil
		}
		if _, err := b.sessions.Update(ctx, key, []byte(worker), e.Revision()); err == nil {
			return worker, nil
		}
	}
	return "", problem("claim session "+session, errors.New("others were quicker, again and again"))
}

// Release implements bus.Sessions.
func (b *Bus) Release(ctx context.Context, session, worker string) error {
	key := keyOf(session)
	e, err := b.sessions.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) || err == nil && string(e.Value()) != worker {
		return nil
	}
	if err == nil {
		err = b.sessions.Delete(ctx, key, jetstream.LastRevision(e.Revision()))
	}
	return problem("release session "+session, err)
}

// Owner implements bus.Sessions.
func (b *Bus) Owner(ctx context.Context, session string) (string, error) {
	e, err := b.sessions.Get(ctx, keyOf(session))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return "", nil
	}
	if err != nil {
		return "", problem("look who has session "+session, err)
	}
	return string(e.Value()), nil
}

// ---- Notes.

// Note implements bus.Notes.
func (b *Bus) Note(ctx context.Context, key string) ([]byte, error) {
	e, err := b.notes.Get(ctx, keyOf(key))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, problem("read note "+key, err)
	}
	return e.Value(), nil
}

// SetNote implements bus.Notes.
func (b *Bus) SetNote(ctx context.Context, key string, value []byte) error {
	_, err := b.notes.Put(ctx, keyOf(key), value)
	return problem("write note "+key, err)
}

// DropNote implements bus.Notes.
func (b *Bus) DropNote(ctx context.Context, key string) error {
	return problem("drop note "+key, b.notes.Purge(ctx, keyOf(key)))
}
