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

// ---- Notices.

// minWords is how many words a notice has at least, so that its subject is never one of the inbox.
const minWords = 3

func (b *Bus) noticeSubject(words []string, token func(string) string) (string, error) {
	if len(words) < minWords {
		return "", fmt.Errorf("nats: a notice of %d words; want at least %d", len(words), minWords)
	}
	tokens := make([]string, len(words))
	for i, w := range words {
		tokens[i] = token(w)
		if tokens[i] == "" {
			return "", fmt.Errorf("nats: word %d of a notice is empty", i)
		}
	}
	return b.subject("notice", strings.Join(tokens, ".")), nil
}

// Announce implements broker.Notices.
func (b *Bus) Announce(words []string, h events.Header, body []byte) error {
	subject, err := b.noticeSubject(words, events.EncodeToken) // it is announced to all who listen, not under all words
	if err != nil {
		return err
	}
	return problem("announce", b.nc.PublishMsg(&nats.Msg{Subject: subject, Header: nats.Header(h), Data: body}))
}

// Listen implements broker.Notices.
func (b *Bus) Listen(ctx context.Context, words []string,
	heard func(words []string, h events.Header, body []byte)) (stop func(), err error) {
	subject, err := b.noticeSubject(words, token)
	if err != nil {
		return nil, err
	}
	begin := b.subject("notice") + "."
	sub, err := b.nc.Subscribe(subject, func(m *nats.Msg) {
		tokens := strings.Split(strings.TrimPrefix(m.Subject, begin), ".")
		for i, t := range tokens {
			w, err := events.DecodeToken(t)
			if err != nil {
				return // not one of ours
			}
			tokens[i] = w
		}
		heard(tokens, events.Header(m.Header), m.Data)
	})
	if err != nil {
		return nil, problem("listen", err)
	}
	stop = func() { _ = sub.Unsubscribe() } // it fails only if the connection is closed
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	if err := b.nc.FlushWithContext(ctx); err != nil {
		stop()
		return nil, problem("listen", err)
	}
	return stop, nil
}

// bounded gives a context a deadline if it has none.
func (b *Bus) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, b.config.Timeout)
}

// ---- Questions.

const (
	headerErrorCode = "Rondo-Error-Code"
	headerError     = "Rondo-Error"

	// maxAnswering bounds how many questions of one method are answered at once.
	maxAnswering = 64
)

// Ask implements broker.Questions.
func (b *Bus) Ask(ctx context.Context, method string, question []byte) ([]byte, error) {
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	var m *nats.Msg
	subject := b.subject("api", events.EncodeToken(method))
	err := b.denied.requesting(ctx, subject, func(ctx context.Context) (err error) {
		m, err = b.nc.RequestWithContext(ctx, subject, question)
		return err
	})
	switch {
	case errors.Is(err, nats.ErrPermissionViolation):
		return nil, fmt.Errorf("ask for %s: %w: NATS does not let this user publish on %s", method,
			broker.ErrPermission, subject)
	case errors.Is(err, nats.ErrNoResponders):
		return nil, fmt.Errorf("ask for %s: %w (is an orchestrator running?)", method, broker.ErrNobody)
	case errors.Is(err, nats.ErrMaxPayload):
		return nil, fmt.Errorf("ask for %s: the question has %d bytes, the server takes %d: %w", method, len(question),
			b.nc.MaxPayload(), err)
	case err != nil:
		return nil, problem("ask for "+method, err)
	}
	if code := m.Header.Get(headerErrorCode); code != "" {
		return nil, &broker.AnswerError{Code: code, Message: m.Header.Get(headerError)}
	}
	return m.Data, nil
}

// Answer implements broker.Questions. When it is stopped, the answers that are being made are still
// given.
func (b *Bus) Answer(method string,
	answer func(ctx context.Context, question []byte) ([]byte, error)) (stop func(), err error) {
	return b.answer(method, "api", answer)
}

// AnswerToo implements broker.RollCalls.
func (b *Bus) AnswerToo(method string,
	answer func(ctx context.Context, question []byte) ([]byte, error)) (stop func(), err error) {
	return b.answer(method, "", answer)
}

// answer answers questions, as one of a group of which one does, or if that is empty beside all
// others.
func (b *Bus) answer(method, group string,
	answer func(ctx context.Context, question []byte) ([]byte, error)) (stop func(), err error) {
	slots := make(chan struct{}, maxAnswering)
	stopped := make(chan struct{})
	var mu sync.Mutex // held while one begins
	var wait sync.WaitGroup
	sub, err := b.nc.QueueSubscribe(b.subject("api", events.EncodeToken(method)), group, func(m *nats.Msg) {
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
			b.respond(b.ctx, m, answer)
		})
	})
	if err != nil {
		return nil, problem("answer questions about "+method, err)
	}
	stop = sync.OnceFunc(func() {
		_ = sub.Unsubscribe() // it fails only if the connection is closed
		mu.Lock()
		close(stopped)
		mu.Unlock()
		wait.Wait()
	})
	if err := b.nc.FlushTimeout(b.config.Timeout); err != nil {
		stop()
		return nil, problem("answer questions about "+method, err)
	}
	return stop, nil
}

// AskAll implements broker.RollCalls.
func (b *Bus) AskAll(ctx context.Context, method string, question []byte, quiet time.Duration) ([][]byte, error) {
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	sub, err := b.nc.SubscribeSync(b.nc.NewInbox())
	if err != nil {
		return nil, problem("ask all for "+method, err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // it fails only if the connection is closed
	subject := b.subject("api", events.EncodeToken(method))
	var answers [][]byte
	err = b.denied.requesting(ctx, subject, func(ctx context.Context) (err error) {
		if err = b.nc.PublishRequest(subject, sub.Subject, question); err == nil {
			answers, err = gather(ctx, sub, quiet)
		}
		return err
	})
	switch {
	case errors.Is(err, nats.ErrPermissionViolation):
		return nil, fmt.Errorf("ask all for %s: %w: NATS does not let this user publish on %s", method,
			broker.ErrPermission, subject)
	case errors.Is(err, broker.ErrNobody):
		return nil, fmt.Errorf("ask all for %s: %w", method, err)
	}
	return answers, problem("ask all for "+method, err)
}

// gather gives the answers that come to a subscription until none has come for the time quiet.
func gather(ctx context.Context, sub *nats.Subscription, quiet time.Duration) (answers [][]byte, err error) {
	for wait := 4 * quiet; ; wait = quiet { // the first one may be busy
		next, cancel := context.WithTimeout(ctx, wait)
		m, err := sub.NextMsgWithContext(next)
		cancel()
		isQuiet := errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil
		switch {
		case errors.Is(err, nats.ErrNoResponders), isQuiet && len(answers) == 0:
			return nil, broker.ErrNobody
		case isQuiet:
			return answers, nil
		case err != nil:
			return nil, err
		}
		if m.Header.Get(headerErrorCode) == "" {
			answers = append(answers, m.Data)
		}
	}
}

func (b *Bus) respond(ctx context.Context, m *nats.Msg,
	answer func(ctx context.Context, question []byte) ([]byte, error)) {
	ctx, cancel := context.WithTimeout(ctx, b.config.Timeout)
	defer cancel()
	data, err := answer(ctx, m.Data)
	out := &nats.Msg{Subject: m.Reply, Data: data}
	if most := int(b.nc.MaxPayload()); err == nil && len(data) > most-headroom {
		err = &broker.AnswerError{Code: "too_large", Message: fmt.Sprintf(
			"the answer has %d bytes, the server takes %d; ask for less at once", len(data), most)}
	}
	if err != nil {
		code := "failed"
		var known *broker.AnswerError
		if errors.As(err, &known) && known.Code != "" {
			code = printable(known.Code)
		}
		out.Data = nil
		out.Header = nats.Header{headerErrorCode: {code}, headerError: {printable(err.Error())}}
	}
	if b.mayAnswer(m) {
		_ = b.nc.PublishMsg(out) // who asked asks again
	}
}

// mayAnswer reports whether somebody waits for an answer where it would go. Who asks chooses the
// subject, and what goes there is published with the rights of who answers: these must not reach
// the streams, neither those of this system nor the requests with which streams are changed.
func (b *Bus) mayAnswer(m *nats.Msg) bool {
	ours := strings.HasPrefix(m.Reply, b.names.prefix+".") || strings.HasPrefix(m.Reply, "$")
	if ours {
		b.log.Warn("NATS: a question is not answered, because the answer should go where messages of the system go",
			"subject", m.Subject, "to", m.Reply)
	}
	return m.Reply != "" && !ours
}
