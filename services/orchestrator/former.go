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

// The current execution may not know whether the instance has taken a message before (see
// round.Former). Then the orchestrator reads the histories of the executions before, back to the
// time at which the message says that it was sent, and decides the message again.

const (
	// maxFormerReads bounds the instances whose former executions are read at once.
	maxFormerReads = 2
	// formerWithin bounds one attempt to read.
	formerWithin = time.Minute
	// maxFormerExecutions and maxFormerEvents bound the read of one instance: a message that was
	// sent longer ago is dead-lettered.
	maxFormerExecutions, maxFormerEvents = 4096, 400_000
	// formerPage is how many events are read at once.
	formerPage = 1000
)

// formerRead is the outcome of a read of former executions.
type formerRead struct {
	entry  *entry
	former *round.Former
	err    error
}

// formerStore reads histories. [history.Reader] implements it.
type formerStore interface {
	Events(ctx context.Context, instance string, execution, after int64, limit int) ([]events.Event, error)
}

// formerReader reads former executions. The goroutine of the loop calls add, start and land.
type formerReader struct {
	store formerStore
	done  chan *formerRead // to the loop

	waiting  []*entry
	inFlight int
}

// busy reports whether instances wait for a read or are being read.
func (f *formerReader) busy() bool { return f.inFlight+len(f.waiting) > 0 }

// add has former executions of an instance read.
func (f *formerReader) add(e *entry, q round.Question) {
	e.move(needFormer)
	e.question = q
	f.waiting = append(f.waiting, e)
}

// start starts the reads that instances wait for.
func (f *formerReader) start(ctx context.Context) {
	for len(f.waiting) > 0 && f.inFlight < maxFormerReads {
		e, former := f.waiting[0], f.waiting[0].former
		f.waiting = f.waiting[1:]
		f.inFlight++
		go func() {
			former, err := f.read(ctx, e.id, e.question, former)
			f.done <- &formerRead{e, former, err}
		}()
	}
}

// land records that a read is not in flight any more.
func (f *formerReader) finish() { f.inFlight-- }

// read reads which messages the executions before one have taken, starting from the known
// ones. A history that cannot be read now is an error; one that can never be read is noted as
// missing.
func (f *formerReader) read(
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
		all, err := f.readExecution(ctx, instance, x)
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

func (f *formerReader) readExecution(ctx context.Context, instance string, execution int64) ([]events.Event, error) {
	var all []events.Event
	for {
		page, err := f.store.Events(ctx, instance, execution, int64(len(all)), formerPage)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if len(page) < formerPage {
			return all, nil
		}
	}
}
