package client

import (
	"context"
	"time"

	"github.com/rondo-run/rondo/internal/busclient"
	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
)

// closable is the broker of a client. From the end of the client on, each call that sends something
// fails with [ErrClosed], also if the connection stays open because others share it.
type closable struct {
	busclient.Broker
	ctx context.Context // ends with the client
}

// calling calls the broker. An error after the client was closed is due to that.
func calling[T any](b closable, call func() (T, error)) (T, error) {
	var none T
	if b.ctx.Err() != nil {
		return none, ErrClosed
	}
	x, err := call()
	if err != nil && b.ctx.Err() != nil {
		return none, ErrClosed
	}
	return x, err
}

func (b closable) Publish(ctx context.Context, messages ...events.Wire) error {
	_, err := calling(b, func() (struct{}, error) { return struct{}{}, b.Broker.Publish(ctx, messages...) })
	return err
}

func (b closable) Has(ctx context.Context, message events.Wire) (bool, error) {
	return calling(b, func() (bool, error) { return b.Broker.Has(ctx, message) })
}

func (b closable) Listen(ctx context.Context, words []string,
	heard func(words []string, header events.Header, body []byte)) (stop func(), err error) {
	return calling(b, func() (func(), error) { return b.Broker.Listen(ctx, words, heard) })
}

func (b closable) Request(ctx context.Context, method string, request []byte) ([]byte, error) {
	return calling(b, func() ([]byte, error) { return b.Broker.Request(ctx, method, request) })
}

func (b closable) Discover(ctx context.Context, method string, request []byte, quiet time.Duration) ([][]byte, error) {
	return calling(b, func() ([][]byte, error) { return b.Broker.Discover(ctx, method, request, quiet) })
}

// source is where a client reads and removes instances.
type source struct {
	store history.Reader // nil: it asks the orchestrators
	asker *query.Reader
	ctx   context.Context // ends with the client
}

func (s source) reader() history.Reader {
	if s.store != nil && s.ctx.Err() == nil {
		return s.store
	}
	return s.asker
}

func (s source) remover() history.Remover {
	if r, ok := s.reader().(history.Remover); ok {
		return r
	}
	return s.asker
}

// delete deletes instances. If the client has the whole store, it does what an orchestrator would
// do.
func (s source) delete(ctx context.Context, b closable, ids []string, how history.Deletion) (query.Deleted, error) {
	if all, ok := s.reader().(query.Store); ok {
		return (&query.Deletions{Store: all, Publisher: b, Prefix: b.Prefix()}).Delete(ctx, ids, how)
	}
	return s.asker.Remove(ctx, ids, how)
}
