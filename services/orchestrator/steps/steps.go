// Package steps runs the inline steps of orchestrations in the process that has decided them.
package steps

import (
	"container/heap"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/round"
)

// Config has the settings of a Runner.
type Config struct {
	// By is the id of the orchestrator.
	By string
	// Concurrency is how many steps run at once.
	Concurrency int
	// Codec encodes payloads; nil is JSON.
	Codec codec.Codec
	// CodeLogger is the logger of the code, Logger that of the service.
	CodeLogger, Logger *slog.Logger
	Tracer             *telemetry.Tracer
	Metrics            *telemetry.Metrics
	// Deliver takes the result of a step. The context ends when all steps are stopped.
	Deliver func(ctx context.Context, m events.Message)
}

// Runner runs inline steps, up to a number at once. They start after the commit that asks for them;
// their results come back as messages. When the process dies or the partition moves, the
// orchestrator that replays the instance next runs them again.
type Runner struct {
	config Config
	slots  chan struct{}
	ctx    context.Context
	end    context.CancelFunc
	wait   sync.WaitGroup

	mu      sync.Mutex
	running map[stepKey]*step
	byOwner map[string]map[stepKey]*step
	later   laterSteps // whose time has not come, or for which there is no slot
	timer   *time.Timer
}

// stepKey names one step of one instance; of its attempts, one at a time runs.
type stepKey struct {
	instance string
	round.StepRef
}

type step struct {
	key     stepKey
	attempt int
	begin   func(context.Context)
	at      time.Time
	cancel  context.CancelFunc
	index   int // in later, -1 when it runs
}

// New returns a Runner without steps.
func New(config Config) *Runner {
	if config.Codec == nil {
		config.Codec = codec.JSON{}
	}
	s := &Runner{config: config, slots: make(chan struct{}, config.Concurrency), running: make(map[stepKey]*step),
		byOwner: make(map[string]map[stepKey]*step)}
	s.ctx, s.end = context.WithCancel(context.Background())
	return s
}

// Start runs a step when it is due, unless it runs or waits already: an instance that was evicted
// and loaded again asks for it again.
func (s *Runner) Start(instance string, row round.Row, x round.Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return
	}
	key := stepKey{instance, x.StepRef}
	if r := s.running[key]; r != nil {
		if r.attempt >= x.Attempt {
			return
		}
		s.remove(r)
	}
	ctx, cancel := context.WithCancel(s.ctx)
	r := &step{key: key, attempt: x.Attempt, at: x.NotBefore, cancel: cancel, index: -1}
	r.begin = func(context.Context) { s.run(ctx, r, row, x) }
	s.running[key] = r
	if s.byOwner[instance] == nil {
		s.byOwner[instance] = make(map[stepKey]*step)
	}
	s.byOwner[instance][key] = r
	heap.Push(&s.later, r)
	s.begin()
}

// begin starts the steps that are due, as far as there are slots.
func (s *Runner) begin() {
	for len(s.later) > 0 {
		first := s.later[0]
		if wait := time.Until(first.at); wait > 0 {
			s.again(wait)
			return
		}
		select {
		case s.slots <- struct{}{}:
		default:
			return // the next step that ends calls begin
		}
		heap.Pop(&s.later)
		s.wait.Go(func() {
			defer func() {
				<-s.slots
				s.mu.Lock()
				defer s.mu.Unlock()
				s.remove(first)
				s.begin()
			}()
			first.begin(s.ctx)
		})
	}
}

// again calls begin after a while.
func (s *Runner) again(after time.Duration) {
	if s.timer != nil {
		s.timer.Stop()
	}
	s.timer = time.AfterFunc(after, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.ctx.Err() == nil {
			s.begin()
		}
	})
}

// run runs one attempt of a step, and delivers its result.
func (s *Runner) run(ctx context.Context, r *step, row round.Row, x round.Step) {
	defer r.cancel()
	within, cancel := ctx, context.CancelFunc(func() {})
	switch {
	case x.Timeout > 0:
		within, cancel = context.WithTimeoutCause(ctx, x.Timeout,
			fmt.Errorf("the step has taken longer than %v", x.Timeout))
	case !x.Deadline.IsZero():
		within, cancel = context.WithDeadline(ctx, x.Deadline)
	}
	defer cancel()
	env := activity.Environment{Codec: s.config.Codec, Logger: s.config.CodeLogger, Step: true,
		Info: activity.ExecutionInfo{
			Activity: x.Name, Instance: r.key.instance, Execution: x.Execution, Orchestration: row.Name,
			Version: row.Version,
			Attempt: x.Attempt, IdempotencyKey: x.IdempotencyKey, Worker: s.config.By, Deadline: x.Deadline,
		}}
	within, from, end := s.config.Tracer.Begin(within, telemetry.Attempt{
		Trace: x.Trace, TraceState: x.TraceState, Baggage: x.Baggage, Name: x.Name, Step: true, Repeated: x.Repeated,
		Instance: r.key.instance, Orchestration: row.Name,
		Ref:    events.Ref{Incarnation: x.StepRef.Incarnation, Execution: x.Execution, Event: x.StepRef.Number},
		Number: x.Attempt,
		Worker: s.config.By,
	})
	began, done := time.Now(), make(chan stepResult, 1)
	go func() {
		out := stepResult{err: &failure.Error{Kind: failure.Panicked, Message: "the step has ended its goroutine"}}
		defer func() { done <- out }() // also when the code calls runtime.Goexit
		out.payload, out.err = x.Run(activity.NewContext(within, env))
	}()
	var out stepResult
	select {
	case out = <-done:
	case <-within.Done():
		select { // it may be about to return
		case out = <-done:
		case <-time.After(stepGrace):
			out = stepResult{err: context.Cause(within)}
			telemetry.LogOf(s.config.Logger, r.key.instance, row).WarnContext(within,
				"an inline step does not end although its time is over; going on without it", "step", x.Name,
				"attempt", x.Attempt)
		}
	}
	if ctx.Err() != nil {
		unwanted := &failure.Error{Kind: failure.Cancelled, Message: "nobody waits for the result any more"}
		end(unwanted)
		s.config.Metrics.Instances().Step(row.Name, time.Since(began), unwanted)
		return
	}
	var failed *failure.Error
	if out.err != nil {
		if within.Err() != nil {
			out.err = &failure.Error{Kind: failure.Timeout, Type: failure.TimeoutStartToClose,
				Message: fmt.Sprintf("the step has taken longer than %v", x.Timeout)}
		}
		failed = events.Bounded(failure.From(out.err))
	}
	end(failed)
	s.config.Metrics.Instances().Step(row.Name, time.Since(began), failed)
	m := x.Done(r.key.instance, out.payload, failed)
	m.Trace = from
	s.config.Deliver(s.ctx, m)
}

// stepGrace is how long a step whose time is over may take to return.
const stepGrace = 200 * time.Millisecond

type stepResult struct {
	payload codec.Payload
	err     error
}

// Cancel stops a step that is no longer wanted.
func (s *Runner) Cancel(instance string, ref round.StepRef) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.running[stepKey{instance, ref}]; r != nil {
		s.remove(r)
	}
}

// Drop stops all steps of an instance.
func (s *Runner) Drop(instance string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.byOwner[instance] {
		s.remove(r)
	}
}

// Has reports whether an instance has steps that are not done.
func (s *Runner) Has(instance string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byOwner[instance]) > 0
}

// Running counts the steps that run or wait for their time.
func (s *Runner) Running() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.running)
}

// remove forgets a step, and stops it if it runs.
func (s *Runner) remove(r *step) {
	r.cancel()
	if r.index >= 0 {
		heap.Remove(&s.later, r.index)
	}
	if s.running[r.key] != r {
		return
	}
	delete(s.running, r.key)
	of := s.byOwner[r.key.instance]
	delete(of, r.key)
	if len(of) == 0 {
		delete(s.byOwner, r.key.instance)
	}
}

// Stop stops all steps. It does not wait for code that does not return.
func (s *Runner) Stop() {
	s.mu.Lock()
	s.end()
	if s.timer != nil {
		s.timer.Stop()
	}
	for _, r := range s.later {
		r.index = -1
	}
	s.later = nil
	s.mu.Unlock()
	s.wait.Wait()
}

// laterSteps is a heap, the earliest first.
type laterSteps []*step

func (h laterSteps) Len() int           { return len(h) }
func (h laterSteps) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h laterSteps) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *laterSteps) Push(x any) {
	s := x.(*step)
	s.index = len(*h)
	*h = append(*h, s)
}
func (h *laterSteps) Pop() any {
	old := *h
	s := old[len(old)-1]
	s.index = -1
	*h = old[:len(old)-1]
	return s
}
