package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	// formerPage is how many events are read at once, formerPages how many pages before other
	// instances have their turn.
	formerPage, formerPages = 1000, 32
	// maxFormerFailures is how many attempts to read may fail although the database answers: then
	// the message is dead-lettered.
	maxFormerFailures = 10
	// answersWithin is how long the database may take to answer a small read.
	answersWithin = 5 * time.Second
)

// formerRead is a read of former executions, in several turns, with its outcome so far. Everything
// that was read stays, and the next turn or attempt continues from there.
type formerRead struct {
	entry              *entry
	question           round.Question
	former             *round.Former
	executions, events int // that were read
	failures           int // attempts in a row that read nothing and failed although the database answers

	done bool // nothing is left to be read
	// gaveUp says that it ended with failures. Its outcome is for one round.
	gaveUp bool
	err    error // of the last attempt
	again  bool  // the attempt before has failed
}

// formerStore reads histories. [history.Reader] implements it.
type formerStore interface {
	Events(ctx context.Context, instance string, execution, after int64, limit int) ([]events.Event, error)
}

// formerReader reads former executions. Instances take turns. The goroutine of the loop calls add,
// proceed, start and finish.
type formerReader struct {
	store formerStore
	done  chan *formerRead // to the loop

	waiting  []*formerRead
	inFlight int
	again    int // of those, reads that have failed before
}

// busy reports whether instances wait for a read or are being read.
func (f *formerReader) busy() bool { return f.inFlight+len(f.waiting) > 0 }

// add has former executions of an instance read. It continues the read of the instance that has
// failed, if there is one.
func (f *formerReader) add(e *entry, q round.Question) {
	e.move(needFormer)
	x := e.reading
	if x == nil || x.question.Execution != q.Execution {
		x = &formerRead{entry: e, former: round.NewFormer(q.Execution)}
		if e.former != nil {
			x.former = e.former.Then(q.Execution)
		}
	}
	x.question, e.reading = q, x
	f.proceed(x)
}

// proceed queues a read behind those of other instances.
func (f *formerReader) proceed(x *formerRead) { f.waiting = append(f.waiting, x) }

// start starts the reads that instances wait for. Those that have failed before leave a slot to the
// others: they may take all of their time again.
func (f *formerReader) start(ctx context.Context) {
	for f.inFlight < maxFormerReads {
		n := slices.IndexFunc(f.waiting, func(x *formerRead) bool {
			return !x.again || f.again < maxFormerReads-1
		})
		if n < 0 {
			return
		}
		x := f.waiting[n]
		f.waiting = slices.Delete(f.waiting, n, n+1)
		f.inFlight++
		if x.again {
			f.again++
		}
		go func() {
			f.read(ctx, x)
			f.done <- x
		}()
	}
}

// forgetFailedRead forgets a read that ended with failures, after the round that it was for: a
// later read of the same executions may succeed.
func (e *entry) forgetFailedRead() {
	if e.reading != nil && e.reading.gaveUp {
		e.reading, e.former = nil, nil
	}
}

// forgetOtherIncarnation forgets the reads of another incarnation: the instance was deleted, and
// was started again under its id.
func (e *entry) forgetOtherIncarnation(loaded string) {
	if loaded != e.known.incarnation {
		e.reading, e.former = nil, nil
	}
}

// finish records that a read is not in flight any more.
func (f *formerReader) finish(x *formerRead) {
	f.inFlight--
	if x.again {
		f.again--
	}
	x.again = x.err != nil
}

// read reads which messages the executions before one have taken, for one turn. A history that can
// never be read is noted as missing, and so is one that cannot be read in many attempts.
func (f *formerReader) read(ctx context.Context, x *formerRead) {
	before := x.executions + x.events
	x.done, x.err = f.readPages(ctx, x)
	switch {
	case x.executions+x.events > before: // the database is slow, but the read ends
		x.failures = 0
		return
	case x.err == nil, !f.answers(ctx, x):
		return
	}
	if x.failures++; x.failures >= maxFormerFailures {
		x.former.Missing(fmt.Sprintf("the executions before cannot be read, in %d attempts: %v", x.failures, x.err))
		x.done, x.err, x.gaveUp = true, nil, true
	}
}

// readPages reads on, and reports true if nothing is left to be read.
func (f *formerReader) readPages(ctx context.Context, x *formerRead) (done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, formerWithin)
	defer cancel()
	former := x.former
	for range formerPages {
		execution, last := former.Next(x.question.Sent), former.Last()
		if execution == 0 {
			return true, nil
		}
		if last == 0 && (x.executions >= maxFormerExecutions || x.events >= maxFormerEvents) {
			former.Missing(fmt.Sprintf("that was more than %d executions or %d events ago", x.executions, x.events))
			return true, nil
		}
		page, err := f.store.Events(ctx, x.entry.id, execution, last, formerPage)
		switch {
		case errors.Is(err, history.ErrNoInstance), errors.Is(err, history.ErrNoExecution),
			history.ClassOf(err) == history.Corrupt:
			former.Missing(fmt.Sprintf("execution %d: %v", execution, err))
			return true, nil
		case err != nil:
			return false, err
		}
		x.events += len(page)
		if len(page) < formerPage {
			x.executions++
		}
		former.ReadPage(page, len(page) < formerPage)
	}
	return false, nil
}

// answers reports whether the database answers a read of the current execution: then it is not the
// database that keeps the former ones from being read.
func (f *formerReader) answers(ctx context.Context, x *formerRead) bool {
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	_, err := f.store.Events(ctx, x.entry.id, x.question.Execution, 0, 1)
	return err == nil || errors.Is(err, history.ErrNoInstance) || errors.Is(err, history.ErrNoExecution)
}
