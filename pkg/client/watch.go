package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// WatchStatus implements [orchestration.Client]. The error is that of the context, or
// [ErrNoInstance] when the instance is deleted. [orchestration.Status.Watch] is the same with the
// type of the status.
//
//	for status, err := range c.WatchStatus(ctx, "order-7") {
//		if err != nil {
//			return err
//		}
//		fmt.Println(status.Data)
//	}
func (c *Client) WatchStatus(ctx context.Context, instance string) iter.Seq2[orchestration.CustomStatus, error] {
	return func(yield func(orchestration.CustomStatus, error) bool) {
		w := watching{c: c, instance: instance, yield: yield}
		err := events.CheckInstance(instance)
		if err == nil {
			err = c.waits.follow(ctx, instance, time.Time{}, w.look)
		}
		if err != nil && !w.left {
			yield(orchestration.CustomStatus{}, err)
		}
	}
}

// watching watches a custom status.
type watching struct {
	c           *Client
	instance    string
	yield       func(orchestration.CustomStatus, error) bool
	incarnation string
	version     int64
	existed     bool
	left        bool // the loop
}

func (w *watching) look(ctx context.Context, heard []query.Notification, ask bool) (bool, error) {
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
	info, err := w.c.data.reader().Instance(ctx, w.instance)
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
func (w *watching) give(incarnation string, version int64, data codec.Payload) bool {
	w.incarnation, w.version = incarnation, version
	w.left = !w.yield(orchestration.CustomStatus{Data: data, Version: version}, nil)
	return !w.left
}

// WaitForValue implements [orchestration.Client]. [orchestration.Value.WaitFor] is the same with
// the type of the value.
func (c *Client) WaitForValue(ctx context.Context, instance, key string) (codec.Payload, error) {
	if err := errors.Join(events.CheckInstance(instance), events.CheckText("key", key)); err != nil {
		return nil, err
	}
	w := valueWait{c: c, instance: instance, key: key}
	err := c.waits.follow(ctx, instance, time.Time{}, w.look)
	return w.value.Data, err
}

type valueWait struct {
	c             *Client
	instance, key string
	value         history.Value
	existed       bool
}

func (w *valueWait) look(ctx context.Context, heard []query.Notification, ask bool) (bool, error) {
	for _, n := range heard {
		x, ok := n.Changed()
		w.existed = w.existed || n.Topic == query.TopicDeleted
		ask = ask || n.Topic == query.TopicEnded || n.Topic == query.TopicDeleted || ok &&
			slices.Contains(x.Keys, w.key)
	}
	if !ask {
		return false, nil
	}
	// First the state of the instance: once it has ended it sets no value any more.
	info, gone := w.c.data.reader().Instance(ctx, w.instance)
	if gone != nil && !errors.Is(gone, history.ErrNoInstance) {
		return false, gone
	}
	v, ok, err := w.c.data.reader().Value(ctx, w.instance, w.key)
	switch {
	case err != nil:
		return false, err
	case ok:
		w.value = v
		return true, nil
	case gone != nil && w.existed:
		return false, deleted(w.instance)
	case gone == nil && info.Status.Ended():
		return false, fmt.Errorf("instance %q, value %q: %w (%s)", w.instance, w.key, orchestration.ErrNoValue,
			info.Status)
	}
	w.existed = w.existed || gone == nil
	return false, nil
}

// ReadValue implements [orchestration.Client]. [Instances.Value] also gives when the instance set
// it.
func (c *Client) ReadValue(ctx context.Context, instance, key string) (codec.Payload, bool, error) {
	v, ok, err := c.data.reader().Value(ctx, instance, key)
	return v.Data, ok, err
}

// ReadStatus implements [orchestration.Client].
func (c *Client) ReadStatus(ctx context.Context, instance string) (orchestration.CustomStatus, error) {
	s, err := c.data.reader().CustomStatus(ctx, instance, -1)
	return orchestration.CustomStatus{Data: s.Data, Version: s.Version}, err
}
