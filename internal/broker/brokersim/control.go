package brokersim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// notifications implements broker.Notifications.
type notifications struct{ *link }

type listener struct {
	c     *link
	wants func(words []string) bool
	heard func(words []string, h events.Header, body []byte)
}

// listen calls heard for each notification that it wants, until stop is called.
func (c *notifications) listen(wants func([]string) bool, heard func([]string, events.Header, []byte)) (stop func()) {
	l := &listener{c.link, wants, heard}
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	c.b.listeners[l] = true
	return func() {
		c.b.mu.Lock()
		defer c.b.mu.Unlock()
		delete(c.b.listeners, l)
	}
}

// Notify implements broker.Notifications.
func (c *notifications) Notify(words []string, h events.Header, body []byte) error {
	if len(words) < 3 || slices.Contains(words, "") {
		return fmt.Errorf("a notification of the words %q", words)
	}
	c.tells("announce "+strings.Join(words, " "), func() {
		c.b.mu.Lock()
		defer c.b.mu.Unlock()
		c.b.notify(words, h, body)
	})
	return nil
}

// Listen implements broker.Notifications.
func (c *notifications) Listen(_ context.Context, words []string,
	heard func([]string, events.Header, []byte)) (stop func(), err error) {
	if len(words) < 3 || slices.Contains(words, "") {
		return nil, fmt.Errorf("a notification of the words %q", words)
	}
	return c.listen(func(said []string) bool {
		return slices.EqualFunc(words, said, func(w, s string) bool { return w == broker.Any || w == s })
	}, heard), nil
}

// notify sends a notification to all matching listeners. mu is held.
func (b *subscriptions) notify(words []string, h events.Header, body []byte) {
	for l := range b.listeners {
		if l.c.ctx.Err() == nil && l.wants(words) {
			l.c.path.Hear("hear "+strings.Join(words, " "), func() {
				go l.heard(slices.Clone(words), maps.Clone(h), body)
			})
		}
	}
}

// requests implements broker.Requests and broker.Discovery.
type requests struct{ *link }

type answerer struct {
	c      *link
	answer func(ctx context.Context, request []byte) ([]byte, error)
	too    bool
}

// Handle implements broker.Requests.
func (c *requests) Handle(method string, answer func(context.Context, []byte) ([]byte, error)) (stop func(),
	err error) {
	return c.answers(method, &answerer{c.link, answer, false}), nil
}

// HandleDiscovery implements broker.Discovery.
func (c *requests) HandleDiscovery(method string, answer func(context.Context, []byte) ([]byte, error)) (stop func(),
	err error) {
	return c.answers(method, &answerer{c.link, answer, true}), nil
}

func (c *requests) answers(method string, a *answerer) (stop func()) {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	c.b.answerers[method] = append(c.b.answerers[method], a)
	slices.SortStableFunc(c.b.answerers[method], func(x, y *answerer) int { return cmp.Compare(x.c.name, y.c.name) })
	return func() {
		c.b.mu.Lock()
		defer c.b.mu.Unlock()
		c.b.answerers[method] = slices.DeleteFunc(c.b.answerers[method], func(x *answerer) bool { return x == a })
	}
}

// those lists the handlers of a method: for discovery requests if too is true, otherwise for
// requests. mu is held.
func (b *subscriptions) those(method string, too bool) (list []*answerer) {
	for _, a := range b.answerers[method] {
		if a.too == too && a.c.ctx.Err() == nil {
			list = append(list, a)
		}
	}
	return list
}

// Request implements broker.Requests.
func (c *requests) Request(ctx context.Context, method string, request []byte) ([]byte, error) {
	var who []*answerer
	if err := c.do(ctx, "ask "+method, func() error { who = c.b.those(method, false); return nil }); err != nil {
		return nil, err
	}
	if len(who) == 0 {
		return nil, fmt.Errorf("request %s: %w", method, broker.ErrNoResponders)
	}
	if len(request) > maxPayload {
		return nil, errors.New("the request is too large")
	}
	return who[c.b.turn.Add(1)%uint64(len(who))].answered(broker.WithRequester(ctx, c.name), request)
}

func (a *answerer) answered(ctx context.Context, request []byte) ([]byte, error) {
	answer, err := a.answer(ctx, request)
	var known *broker.ResponseError
	switch {
	case err == nil && len(answer) > maxPayload:
		return nil, &broker.ResponseError{Code: "too_large", Message: "the answer is too large"}
	case err != nil:
		code := "failed"
		if errors.As(err, &known) && known.Code != "" {
			code = known.Code
		}
		return nil, &broker.ResponseError{Code: code, Message: err.Error()}
	}
	return answer, nil
}

// Discover implements broker.Discovery.
func (c *requests) Discover(ctx context.Context, method string, request []byte,
	_ time.Duration) (answers [][]byte, err error) {
	var who []*answerer
	if err := c.do(ctx, "ask all "+method, func() error { who = c.b.those(method, true); return nil }); err != nil {
		return nil, err
	}
	for _, a := range who {
		if answer, err := a.answered(ctx, request); err == nil {
			answers = append(answers, answer)
		}
	}
	if len(answers) == 0 {
		return nil, fmt.Errorf("ask all for %s: %w", method, broker.ErrNoResponders)
	}
	return answers, nil
}
