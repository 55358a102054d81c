package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// Whether an instance has taken a message before, its current execution may not know (see
// round.Former). Then the histories of the executions before are read, as far back as the message
// tells that it was sent, and the message is decided again.

const (
	// maxFormerReads is how many instances are read about at once.
	maxFormerReads = 2
	// formerWithin bounds one attempt to read.
	formerWithin = time.Minute
	// maxFormerExecutions and maxFormerEvents bound what is read of one instance: a message that
	// tells of a time longer ago is dead-lettered.
	maxFormerExecutions, maxFormerEvents = 4096, 400_000
	// formerPage is how many events are read at once.
	formerPage = 1000
)

// formerRead is what a read of former executions has brought.
type formerRead struct {
	entry  *entry
	former *round.Former
	err    error
}

// askFormer has former executions read before the instance is decided again.
func (l *loop) askFormer(e *entry, q round.Question) {
	e.stage, e.question = asking, q
	l.toAsk = append(l.toAsk, e)
}

// startAsking begins to read what was asked for.
func (l *loop) startAsking(ctx context.Context) {
	for len(l.toAsk) > 0 && l.asks < maxFormerReads {
		e, former := l.toAsk[0], l.toAsk[0].former
		l.toAsk = l.toAsk[1:]
		l.asks++
		go func() {
			former, err := l.o.readFormer(ctx, e.id, e.question, former)
			l.answered <- &formerRead{e, former, err}
		}()
	}
}

// takeFormer goes on with an instance whose former executions were read.
func (l *loop) takeFormer(x *formerRead) {
	l.asks--
	e := x.entry
	e.stage = idle
	if x.err != nil {
		l.of(e).Warn("former executions could not be read; trying again",
			"execution", e.question.Execution, "error", x.err)
		if !l.draining {
			l.pause(e, loadAgain)
			return
		}
	}
	if x.err == nil {
		e.former = x.former
	}
	l.advance(e)
}

// readFormer reads what executions before one have taken in, beginning with what is known already.
// What cannot be read now is an error, what can never be read is noted as missing.
func (o *Orchestrator) readFormer(
	ctx context.Context, instance string, q round.Question, known *round.Former,
) (*round.Former, error) {
	ctx, cancel := context.WithTimeout(ctx, formerWithin)
	defer cancel()
	former := round.NewFormer(q.Execution)
	if known != nil {
		former = known.Then(q.Execution)
	}
	executions, read := 0, 0
	for x := former.Next(q.Sent); x > 0; x = former.Next(q.Sent) {
		if executions >= maxFormerExecutions || read >= maxFormerEvents {
			former.Missing(fmt.Sprintf("that was more than %d executions or %d events ago", executions, read))
			break
		}
		all, err := o.readExecution(ctx, instance, x)
		switch {
		case errors.Is(err, history.ErrNoInstance), errors.Is(err, history.ErrNoExecution),
			history.ClassOf(err) == history.Corrupt:
			former.Missing(fmt.Sprintf("execution %d: %v", x, err))
		case err != nil:
			return nil, err
		default:
			former.Read(all)
		}
		executions, read = executions+1, read+len(all)
	}
	return former, nil
}

func (o *Orchestrator) readExecution(ctx context.Context, instance string, execution int64) ([]events.Event, error) {
	var all []events.Event
	for {
		page, err := o.store.Events(ctx, instance, execution, int64(len(all)), formerPage)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if len(page) < formerPage {
			return all, nil
		}
	}
}
