package natsbroker

import (
	"context"
	"errors"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rondo-run/rondo/pkg/events"
)

// bucket tells if there is none to be seen.
func bucket(kv jetstream.KeyValue) (jetstream.KeyValue, error) {
	if kv == nil {
		return nil, errors.New(
			"nats: a bucket cannot be seen with these rights, or was not there when the connection was made")
	}
	return kv, nil
}

// ---- Sessions.

// keyOf makes a key for a bucket of any text.
func keyOf(s string) string {
	s = strings.NewReplacer("%", "=", "~", "=7E", ":", "=3A", "@", "=40", "+", "=2B", ",", "=2C", "=",
		"=3D").Replace(events.EncodeToken(s))
	if len(s) <= maxConsumerName {
		return s
	}
	h := fnv.New64a()
	h.Write([]byte(s))
	return s[:maxConsumerName-17] + "_" + strconv.FormatUint(h.Sum64(), 16)
}

// Claim implements broker.Sessions.
func (b *Bus) Claim(ctx context.Context, session, worker string) (string, error) {
	kv, err := bucket(b.there.Load().sessions)
	if err != nil {
		return "", err
	}
	key := keyOf(session)
	for range 8 { // others may be as quick
		_, err := kv.Create(ctx, key, []byte(worker))
		if err == nil {
			return worker, nil
		}
		if !errors.Is(err, jetstream.ErrKeyExists) {
			return "", problem("claim session "+session, err)
		}
		e, err := kv.Get(ctx, key)
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			continue // it has just ended
		}
		if err != nil {
			return "", problem("claim session "+session, err)
		}
		if string(e.Value()) != worker {
			return string(e.Value()), nil
		}
		if _, err := kv.Update(ctx, key, []byte(worker), e.Revision()); err == nil {
			return worker, nil
		}
	}
	return "", problem("claim session "+session, errors.New("others were quicker, again and again"))
}

// Release implements broker.Sessions.
func (b *Bus) Release(ctx context.Context, session, worker string) error {
	kv, err := bucket(b.there.Load().sessions)
	if err != nil {
		return err
	}
	key := keyOf(session)
	e, err := kv.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) || err == nil && string(e.Value()) != worker {
		return nil
	}
	if err == nil {
		err = kv.Delete(ctx, key, jetstream.LastRevision(e.Revision()))
	}
	return problem("release session "+session, err)
}

// Owner implements broker.Sessions.
func (b *Bus) Owner(ctx context.Context, session string) (string, error) {
	kv, err := bucket(b.there.Load().sessions)
	if err != nil {
		return "", err
	}
	e, err := kv.Get(ctx, keyOf(session))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return "", nil
	}
	if err != nil {
		return "", problem("look who has session "+session, err)
	}
	return string(e.Value()), nil
}

// ---- Notes.

// Note implements broker.Notes.
func (b *Bus) Note(ctx context.Context, key string) ([]byte, error) {
	kv, err := bucket(b.there.Load().notes)
	if err != nil {
		return nil, err
	}
	e, err := kv.Get(ctx, keyOf(key))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, problem("read note "+key, err)
	}
	return e.Value(), nil
}

// SetNote implements broker.Notes.
func (b *Bus) SetNote(ctx context.Context, key string, value []byte) error {
	kv, err := bucket(b.there.Load().notes)
	if err != nil {
		return err
	}
	_, err = kv.Put(ctx, keyOf(key), value)
	return problem("write note "+key, err)
}

// DropNote implements broker.Notes.
func (b *Bus) DropNote(ctx context.Context, key string) error {
	kv, err := bucket(b.there.Load().notes)
	if err != nil {
		return err
	}
	return problem("drop note "+key, kv.Purge(ctx, keyOf(key), jetstream.PurgeTTL(markerFor)))
}
