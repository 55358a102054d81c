package query

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
)

// The broker gives a request to one orchestrator, and does not know whether that one is frozen or
// cut off. So an orchestrator also has a method of its own, which takes the requests that only
// read, and tells it when asked with [MethodPingAll].

const (
	// MethodPing is answered by one orchestrator, MethodPingAll by each: at once, and without the
	// database.
	MethodPing    = "ping"
	MethodPingAll = "ping-all"
)

const (
	// silence is how long an orchestrator may take before another one gets the request, too. It is
	// less if the caller does not wait for four times as long.
	silence = time.Second
	// pingQuiet is the time without a further answer after which a Reader has found the
	// orchestrators that answer; the first one may take four times as long.
	pingQuiet = 50 * time.Millisecond
)

// Ping is the answer of an orchestrator to [MethodPing].
type Ping struct {
	ID string `json:"id,omitempty"`
	// Method takes requests for this orchestrator.
	Method string `json:"method"`
}

// directed is a request for one orchestrator.
type directed struct {
	Method   string          `json:"method"`
	Question json.RawMessage `json:"question,omitempty"`
}

// onlyReads reports whether a method changes nothing.
func onlyReads(method string) bool { return !removes(method) && method != MethodRecover }

func removes(method string) bool {
	switch method {
	case MethodDelete, MethodDeleteEnded, MethodPrune, MethodPruneAll, MethodWithdraw,
		MethodPutSchedule, MethodChangeSchedule, MethodDropSchedule:
		return true
	}
	return false
}

type handler = func(context.Context, []byte) ([]byte, error)

// ping returns the handler of pings, and the one of the requests for this orchestrator.
func (a *answerer) ping(handlers map[string]handler) (ping, takes handler, method string) {
	method = "to-" + newToken()
	ping = func(context.Context, []byte) ([]byte, error) { return marshal(Ping{a.o.ID, method}) }
	takes = func(ctx context.Context, question []byte) ([]byte, error) {
		var d directed
		if err := unmarshal(question, &d, true); err != nil {
			return nil, badQuestion(`question for one orchestrator: %v; it is a JSON object like `+
				`{"method":"instance","question":{"instance":"order-7"}}`, err)
		}
		handle := handlers[d.Method]
		if handle == nil || !onlyReads(d.Method) {
			return nil, badQuestion("question for one orchestrator: %q is not a method that reads", d.Method)
		}
		return handle(ctx, d.Question)
	}
	return ping, takes, method
}

// answer is the answer to a request.
type answer struct {
	data []byte
	err  error
}

// final reports whether a further answer cannot be better.
func (a answer) final() bool {
	_, told := errors.AsType[*broker.ResponseError](a.err)
	return a.err == nil || told
}

// request sends a request. If no answer comes for a while, the orchestrator that has the request
// may be frozen: it is sent once more, to one that answers pings. The first answer counts.
func (r *Reader) request(ctx context.Context, method string, question []byte) ([]byte, error) {
	if removes(method) {
		return r.broker.Request(ctx, method, question)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan answer, 2)
	go func() { data, err := r.broker.Request(ctx, method, question); answers <- answer{data, err} }()
	patience := r.silence
	if until, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(until)/4)
	}
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case a := <-answers:
		return a.data, a.err
	case <-t.C:
	}
	go func() { data, err := r.requestOther(ctx, method, question); answers <- answer{data, err} }()
	first := <-answers
	if first.final() {
		return first.data, first.err
	}
	if second := <-answers; second.final() {
		return second.data, second.err
	}
	return nil, first.err
}

// requestOther sends a request to an orchestrator that answers pings; if none does, or it is not
// permitted to ask them, to any.
func (r *Reader) requestOther(ctx context.Context, method string, question []byte) ([]byte, error) {
	if there := r.responsive(ctx); len(there) > 0 && onlyReads(method) {
		d, err := marshal(directed{method, question})
		if err != nil {
			return nil, err
		}
		data, err := r.broker.Request(ctx, there[rand.IntN(len(there))].Method, d)
		if !errors.Is(err, broker.ErrNoResponders) && !errors.Is(err, broker.ErrPermission) {
			return data, err
		}
	}
	return r.broker.Request(ctx, method, question)
}

// responsive returns the orchestrators that answer pings; none if they cannot be asked.
func (r *Reader) responsive(ctx context.Context) []Ping {
	answers, err := r.broker.Discover(ctx, MethodPingAll, nil, pingQuiet)
	if err != nil {
		return nil // older ones have no pings
	}
	var all []Ping
	for _, data := range answers {
		var p Ping
		if unmarshal(data, &p, false) == nil && p.Method != "" {
			all = append(all, p)
		}
	}
	return all
}

// pings is how many pings [Reader.Silent] sends, and pinging how long it waits for answers.
const (
	pings   = 32
	pinging = 2 * time.Second
)

// Silent looks for orchestrators that have subscribed to requests and do not answer: they are
// frozen, cut off, or were killed a moment ago. Which of them gets a request, the broker decides;
// so Silent sends many pings, and returns how many of them got no answer. It also returns the ids
// of the orchestrators that answer.
func (r *Reader) Silent(ctx context.Context) (unanswered, sent int, ids []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, pinging)
	defer cancel()
	errs := make(chan error, pings)
	for range pings {
		go func() { _, err := r.broker.Request(ctx, MethodPing, nil); errs <- err }()
	}
	for _, p := range r.responsive(ctx) {
		ids = append(ids, p.ID)
	}
	for range pings {
		switch e := <-errs; {
		case e == nil:
		case errors.Is(e, context.DeadlineExceeded):
			unanswered++
		default:
			err = fmt.Errorf("ping the orchestrators: %w", e)
		}
	}
	return unanswered, pings, ids, err
}
