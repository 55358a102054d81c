package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// WatchStatus gives the custom status of an instance, and then what it becomes, until the instance
// has ended or the loop is left. When it changes faster than it is looked at, not every value is
// given, but always the last. An error ends the loop: that of the context, or
// [history.ErrNoInstance] when the instance is deleted. One that does not exist yet is waited for.
//
//	for status, err := range c.WatchStatus(ctx, "order-7") {
//		if err != nil {
//			return err
//		}
//		fmt.Println(status.Data)
//	}
func (c *Client) WatchStatus(ctx context.Context, instance string) iter.Seq2[history.CustomStatus, error] {
	return func(yield func(history.CustomStatus, error) bool) {
		w := watching{c: c, instance: instance, yield: yield}
		err := events.CheckInstance(instance)
		if err == nil {
			err = c.follow(ctx, instance, time.Time{}, w.look)
		}
		if err != nil && !w.left {
			yield(history.CustomStatus{}, err)
		}
	}
}

// watching watches a custom status.
type watching struct {
	c           *Client
	instance    string
	yield       func(history.CustomStatus, error) bool
	incarnation string
	version     int64
	existed     bool
	left        bool // the loop
}

func (w *watching) look(ctx context.Context, heard []query.Notice, ask bool) (bool, error) {
	for _, n := range heard {
		switch x, ok := n.Changed(); {
		case n.Topic == query.TopicDeleted:
			ask, w.existed = true, true
		case n.Topic == query.TopicEnded:
			ask = true
		case !ok || n.Topic != query.TopicStatus:
		case x.Large || x.Incarnation != w.incarnation:
			ask = true
		case x.Version > w.version && !w.give(x.Incarnation, x.Version, x.Data):
			return true, nil
		}
	}
	if !ask {
		return false, nil
	}
	info, err := w.c.Instance(ctx, w.instance)
	switch {
	case errors.Is(err, history.ErrNoInstance) && w.existed:
		return false, deleted(w.instance)
	case errors.Is(err, history.ErrNoInstance):
		return false, nil
	case err != nil:
		return false, err
	}
	changed := info.Incarnation != w.incarnation && (info.CustomStatusVersion > 0 || w.version > 0) ||
		info.Incarnation == w.incarnation &&
			info.CustomStatusVersion > w.version
	if changed && !w.give(info.Incarnation, info.CustomStatusVersion, info.CustomStatus) {
		return true, nil
	}
	w.incarnation, w.existed = info.Incarnation, true
	return info.Status.Ended(), nil
}

// give gives a status to the loop, and reports whether that goes on.
func (w *watching) give(incarnation string, version int64, data events.Payload) bool {
	w.incarnation, w.version = incarnation, version
	w.left = !w.yield(history.CustomStatus{Data: data, Version: version, Changed: true}, nil)
	return !w.left
}

// ErrNoValue says that an instance has ended without setting the value that was waited for.
var ErrNoValue = errors.New("it has ended without this value")

// WaitForValue waits until an instance has a value, and gives it. An instance that does not exist
// yet is waited for; one that has ended without the value is [ErrNoValue].
func (c *Client) WaitForValue(ctx context.Context, instance, key string) (history.Value, error) {
	if err := errors.Join(events.CheckInstance(instance), events.CheckText("key", key)); err != nil {
		return history.Value{}, err
	}
	w := valueWait{c: c, instance: instance, key: key}
	err := c.follow(ctx, instance, time.Time{}, w.look)
	return w.value, err
}

type valueWait struct {
	c             *Client
	instance, key string
	value         history.Value
	existed       bool
}

func (w *valueWait) look(ctx context.Context, heard []query.Notice, ask bool) (bool, error) {
	for _, n := range heard {
		x, ok := n.Changed()
		w.existed = w.existed || n.Topic == query.TopicDeleted
		ask = ask || n.Topic == query.TopicEnded || n.Topic == query.TopicDeleted || ok &&
			slices.Contains(x.Keys, w.key)
	}
	if !ask {
		return false, nil
	}
	// First how the instance stands: what has ended before the value is asked for will not set it
	// any more.
	info, gone := w.c.Instance(ctx, w.instance)
	if gone != nil && !errors.Is(gone, history.ErrNoInstance) {
		return false, gone
	}
	v, ok, err := w.c.Value(ctx, w.instance, w.key)
	switch {
	case err != nil:
		return false, err
	case ok:
		w.value = v
		return true, nil
	case gone != nil && w.existed:
		return false, deleted(w.instance)
	case gone == nil && info.Status.Ended():
		return false, fmt.Errorf("instance %q, value %q: %w (%s)", w.instance, w.key, ErrNoValue, info.Status)
	}
	w.existed = w.existed || gone == nil
	return false, nil
}

// ---- With types.

// ValueOf reads a value of an instance; ok is false if there is none.
func ValueOf[T any](ctx context.Context, c *Client, k orchestration.Key[T], instance string) (v T, ok bool, err error) {
	got, ok, err := c.Value(ctx, instance, k.Name())
	if err != nil || !ok {
		return v, false, err
	}
	return v, true, c.o.Codec.Decode(got.Data, &v)
}

// WaitFor waits until an instance has a value: see [Client.WaitForValue].
func WaitFor[T any](ctx context.Context, c *Client, k orchestration.Key[T], instance string) (v T, err error) {
	got, err := c.WaitForValue(ctx, instance, k.Name())
	if err != nil {
		return v, err
	}
	return v, c.o.Codec.Decode(got.Data, &v)
}

// StatusOf reads the custom status of an instance; ok is false if there is none.
func StatusOf[T any](ctx context.Context, c *Client, _ orchestration.Status[T], instance string) (v T,
	ok bool, err error) {
	got, err := c.CustomStatus(ctx, instance, -1)
	if err != nil || len(got.Data) == 0 {
		return v, false, err
	}
	return v, true, c.o.Codec.Decode(got.Data, &v)
}
