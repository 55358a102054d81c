package natsbus

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"
)

// Marked implements bus.Marks.
func (b *Bus) Marked(ctx context.Context, name string) (bool, error) {
	kv, err := bucket(b.there.Load().marks)
	if err != nil {
		return false, err
	}
	_, err = kv.Get(ctx, keyOf(name))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return false, nil
	}
	return err == nil, problem("read mark "+name, err)
}

// SetMark implements bus.Marks.
func (b *Bus) SetMark(ctx context.Context, name string) error {
	kv, err := bucket(b.there.Load().marks)
	if err == nil {
		_, err = kv.Put(ctx, keyOf(name), []byte("set"))
	}
	return problem("set mark "+name, err)
}

// ClearMark implements bus.Marks.
func (b *Bus) ClearMark(ctx context.Context, name string) error {
	kv, err := bucket(b.there.Load().marks)
	if err == nil {
		err = kv.Delete(ctx, keyOf(name))
	}
	return problem("clear mark "+name, err)
}
