package natsbroker

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"
)

// markSet is the content of a mark.
const markSet = "set"

// Marked implements broker.Marks.
func (b *Bus) Marked(ctx context.Context, name string) (bool, error) {
	kv, err := bucket(b.there.Load().marks)
	if err != nil {
		return false, err
	}
	e, err := kv.Get(ctx, keyOf(name))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return false, nil
	}
	// Anything else may be an acknowledgement: NATS sends that of a client wherever the client
	// wants it.
	return err == nil && string(e.Value()) == markSet, problem("read mark "+name, err)
}

// SetMark implements broker.Marks.
func (b *Bus) SetMark(ctx context.Context, name string) error {
	kv, err := bucket(b.there.Load().marks)
	if err == nil {
		_, err = kv.Put(ctx, keyOf(name), []byte(markSet))
	}
	return problem("set mark "+name, err)
}

// ClearMark implements broker.Marks.
func (b *Bus) ClearMark(ctx context.Context, name string) error {
	kv, err := bucket(b.there.Load().marks)
	if err == nil {
		err = kv.Delete(ctx, keyOf(name))
	}
	return problem("clear mark "+name, err)
}
