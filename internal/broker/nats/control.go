package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// ---- Notifications.

// minWords is the minimum number of words of a notification, so that its subject is never one of
// the inbox.
const minWords = 3

// notifications are messages to all processes that listen, which NATS does not store.
type notifications struct{ *conn }

// Notify implements broker.Notifications.
func (n *notifications) Notify(words []string, h events.Header, body []byte) error {
	subject, err := n.notificationSubject(words, events.EncodeToken)
	if err != nil {
		return err
	}
	return problem("notify", n.nc.PublishMsg(&nats.Msg{Subject: subject, Header: nats.Header(h), Data: body}))
}

// Listen implements broker.Notifications.
func (n *notifications) Listen(ctx context.Context, words []string,
	heard func(words []string, h events.Header, body []byte)) (stop func(), err error) {
	subject, err := n.notificationSubject(words, token)
	if err != nil {
		return nil, err
	}
	begin := n.subject("notification") + "."
	sub, err := n.nc.Subscribe(subject, func(m *nats.Msg) {
		tokens := strings.Split(strings.TrimPrefix(m.Subject, begin), ".")
		for i, t := range tokens {
			w, err := events.DecodeToken(t)
			if err != nil {
				return // not a notification of Rondo
			}
			tokens[i] = w
		}
		heard(tokens, events.Header(m.Header), m.Data)
	})
	if err != nil {
		return nil, problem("listen", err)
	}
	stop = func() { _ = sub.Unsubscribe() } // it fails only if the connection is closed
	if err := n.flush(ctx); err != nil {
		stop()
		return nil, problem("listen", err)
	}
	return stop, nil
}

// ---- Requests.

const (
	headerErrorCode = "Rondo-Error-Code"
	headerError     = "Rondo-Error"

	// replyToOther begins the reply subjects that NATS puts in the place of those of another
	// account.
	replyToOther = "_R_."

	// maxHandling is the maximum number of requests of one method handled at once. Further ones
	// wait: maxRequests and maxRequestBytes bound them. The NATS client drops those beyond. Their
	// requesters ask again, unless the request removes something.
	maxHandling                  = 64
	maxRequests, maxRequestBytes = 1024, 4 << 20
)

// requests are requests to one process that handles them, or to all.
type requests struct{ *conn }

// requestSubject is rondo.api.<method>, or rondo.operator.<method> for methods that clients may not
// use.
func (r *requests) requestSubject(method string) string {
	if name, is := strings.CutPrefix(method, broker.ForOperators); is {
		return r.subject("operator", events.EncodeToken(name))
	}
	return r.subject("api", events.EncodeToken(method))
}

// Request implements broker.Requests.
func (r *requests) Request(ctx context.Context, method string, request []byte) ([]byte, error) {
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	var m *nats.Msg
	subject := r.requestSubject(method)
	err := r.denied.requesting(ctx, subject, func(ctx context.Context) (err error) {
		m, err = r.nc.RequestWithContext(ctx, subject, request)
		return err
	})
	switch {
	case errors.Is(err, nats.ErrPermissionViolation):
		return nil, fmt.Errorf("request %s: %w: NATS does not let this user publish on %s", method,
			broker.ErrPermission, subject)
	case errors.Is(err, nats.ErrNoResponders):
		return nil, fmt.Errorf("request %s: %w (is an orchestrator running?)", method, broker.ErrNoResponders)
	case errors.Is(err, nats.ErrMaxPayload):
		return nil, fmt.Errorf("request %s: the request has %d bytes, the server takes %d: %w", method, len(request),
			r.nc.MaxPayload(), err)
	case err != nil:
		return nil, problem("request "+method, err)
	}
	if code := m.Header.Get(headerErrorCode); code != "" {
		return nil, &broker.ResponseError{Code: code, Message: strings.Join(m.Header.Values(headerError), "\n")}
	}
	return m.Data, nil
}

// Handle implements broker.Requests. Requests in flight are still handled after stop.
func (r *requests) Handle(method string,
	answer func(ctx context.Context, request []byte) ([]byte, error)) (stop func(), err error) {
	return r.handle(method, "api", answer)
}

// HandleDiscovery implements broker.Discovery.
func (r *requests) HandleDiscovery(method string,
	answer func(ctx context.Context, request []byte) ([]byte, error)) (stop func(), err error) {
	return r.handle(method, "", answer)
}

// handle handles requests, as a member of a queue group; if the group is empty, beside all other
// handlers.
func (r *requests) handle(method, group string,
	answer func(ctx context.Context, request []byte) ([]byte, error)) (stop func(), err error) {
	slots := make(chan struct{}, maxHandling)
	stopped := make(chan struct{})
	var mu sync.Mutex // held while a handler begins
	var wait sync.WaitGroup
	sub, err := r.nc.QueueSubscribe(r.requestSubject(method), group, func(m *nats.Msg) {
		m.Header = nil // it may take many times the memory of the message, and means nothing
		select {
		case slots <- struct{}{}:
		case <-stopped:
			return
		}
		mu.Lock()
		defer mu.Unlock()
		select {
		case <-stopped:
			return
		default:
		}
		wait.Go(func() {
			defer func() { <-slots }()
			r.respond(r.ctx, m, answer)
		})
	})
	if err != nil {
		return nil, problem("handle requests for "+method, err)
	}
	// The limit in bytes has room for any request. An error means that the connection is closed.
	_ = sub.SetPendingLimits(maxRequests, max(maxRequestBytes, 2*int(r.nc.MaxPayload())))
	stop = sync.OnceFunc(func() {
		_ = sub.Unsubscribe() // it fails only if the connection is closed
		mu.Lock()
		close(stopped)
		mu.Unlock()
		wait.Wait()
	})
	if err := r.flush(r.ctx); err != nil {
		stop()
		return nil, problem("handle requests for "+method, err)
	}
	return stop, nil
}

// Discover implements broker.Discovery.
func (r *requests) Discover(ctx context.Context, method string, request []byte, quiet time.Duration) ([][]byte, error) {
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	sub, err := r.nc.SubscribeSync(r.nc.NewInbox())
	if err != nil {
		return nil, problem("ask all for "+method, err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // it fails only if the connection is closed
	subject := r.requestSubject(method)
	var answers [][]byte
	err = r.denied.requesting(ctx, subject, func(ctx context.Context) (err error) {
		if err = r.nc.PublishRequest(subject, sub.Subject, request); err == nil {
			answers, err = gather(ctx, sub, quiet)
		}
		return err
	})
	switch {
	case errors.Is(err, nats.ErrPermissionViolation):
		return nil, fmt.Errorf("ask all for %s: %w: NATS does not let this user publish on %s", method,
			broker.ErrPermission, subject)
	case errors.Is(err, broker.ErrNoResponders):
		return nil, fmt.Errorf("ask all for %s: %w", method, err)
	}
	return answers, problem("ask all for "+method, err)
}

// maxAnswers and maxAnswerBytes bound the responses to a discovery request: other processes decide
// how many there are, and how large.
const (
	maxAnswers     = 10_000
	maxAnswerBytes = 64 << 20
)

var errManyAnswers = fmt.Errorf("more than %d responses, or more than %d MiB; each process responds once, so find "+
	"the NATS user that sends more (nats server report connections) and disconnect it", maxAnswers, maxAnswerBytes>>20)

// gather returns the responses that arrive at a subscription until none has arrived for the time
// quiet. It returns errManyAnswers beyond the bounds.
func gather(ctx context.Context, sub *nats.Subscription, quiet time.Duration) (answers [][]byte, err error) {
	if err := sub.SetPendingLimits(maxAnswers, maxAnswerBytes); err != nil {
		return nil, err
	}
	n, size := 0, 0
	for wait := 4 * quiet; ; wait = quiet { // the first handler may be busy
		next, cancel := context.WithTimeout(ctx, wait)
		m, err := sub.NextMsgWithContext(next)
		cancel()
		isQuiet := errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil
		switch {
		case errors.Is(err, nats.ErrNoResponders), isQuiet && len(answers) == 0:
			return nil, broker.ErrNoResponders
		case isQuiet:
			return answers, nil
		case errors.Is(err, nats.ErrSlowConsumer):
			return nil, errManyAnswers
		case err != nil:
			return nil, err
		}
		if n, size = n+1, size+m.Size(); n > maxAnswers || size > maxAnswerBytes {
			return nil, errManyAnswers
		}
		if m.Header.Get(headerErrorCode) == "" {
			answers = append(answers, m.Data)
		}
	}
}

func (r *requests) respond(ctx context.Context, m *nats.Msg,
	answer func(ctx context.Context, request []byte) ([]byte, error)) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	if strings.HasPrefix(m.Reply, replyToOther) {
		ctx = broker.WithOtherAccount(ctx)
	}
	// The library subscribes once for the answers to all requests of a connection.
	inbox := m.Reply[:max(strings.LastIndexByte(m.Reply, '.'), 0)]
	data, err := answer(broker.WithRequester(ctx, inbox), m.Data)
	out := &nats.Msg{Subject: m.Reply, Data: data}
	if most := int(r.nc.MaxPayload()); err == nil && len(data) > most-headroom {
		err = &broker.ResponseError{Code: "too_large", Message: fmt.Sprintf(
			"the answer has %d bytes, the server takes %d; ask for less at once", len(data), most)}
	}
	if err != nil {
		code := "failed"
		var known *broker.ResponseError
		if errors.As(err, &known) && known.Code != "" {
			code = printable(known.Code)
		}
		out.Data = nil
		out.Header = nats.Header{headerErrorCode: {code}, headerError: printableLines(err.Error())}
	}
	if r.mayAnswer(m) {
		_ = r.nc.PublishMsg(out) // if it is lost, the requester asks again
	}
}
