// Command batch bills thousands of customers: one activity for each, so many at a time, and one
// summary at the end.
//
// It teaches how an orchestration works through a long list:
//
//   - so many at the same time, and not more: lanes of [orchestration.Go], which share a counter
//   - a status that tells how far it is: Progress
//   - a failure for one customer goes into the summary, and the others are billed all the same
//   - a history that stays small: it continues as new after so many customers, and carries the
//     summary along
//   - each customer counts once, whatever process dies meanwhile: activities with a recorded result
//     are not executed again. Invoices in flight are executed again, with the same idempotency key,
//     so that the printer can recognise an invoice that it has already printed
//
// See it work, then end it with Ctrl-C:
//
//	go run ./examples/batch dev --demo
//
// Start it again, without --demo, and have it bill customers of yours from another terminal. This
// takes half a minute:
//
//	go build -o bin/rondo ./cmd/rondo
//	bin/rondo start bill '{"month":"2027-01","in_flight":20,"each_ms":100}' --id bill-1
//	bin/rondo watch bill-1
//
// End the program in the middle, with Ctrl-C or as hard as you like (`kill -9`; its pid stands in
// .rondo/dev.json), and start it again. The batch goes on where it was. After a `kill -9`, NATS may
// redeliver invoices in flight only after half a minute (--task-ack-wait). The summary is always
// the same:
//
//	bin/rondo wait bill-1
//
// The number of the instance's execution shows how often it has continued as new; `history` tells
// about the last one, and `prune` removes the others.
//
//	bin/rondo show bill-1
//	bin/rondo history bill-1
//	bin/rondo prune bill-1
//
// Any NATS client can start a batch, and cancel it. The output has the customers billed until then:
//
//	nats pub rondo.start.bill.bill-2 '{"month":"2027-02","customers":20000,"each_ms":1000}'
//	nats pub rondo.control.cancel.bill-2 'not this month'
//	nats request rondo.api.instance '{"instance":"bill-2"}'
//
// The address of each thousandth customer is unknown, and the printer is out of paper at the first
// attempt for each hundredth.
package main

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/app"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

// Job is the input of a batch. A field that is zero gets its default.
type Job struct {
	// Month is the month to bill; Customers is the number of customers, numbered from 1 on.
	// Default: 5,000.
	Month     string `json:"month"`
	Customers int    `json:"customers,omitempty"`
	// InFlight is how many are billed at the same time. Default: 100.
	InFlight int `json:"in_flight,omitempty"`
	// PerExecution is after how many it continues as new at the latest. Default: 1,000. EachMS is
	// how many milliseconds an invoice takes.
	PerExecution int `json:"per_execution,omitempty"`
	EachMS       int `json:"each_ms,omitempty"`
	// SoFar is the summary of the executions before this one. A client that starts a batch leaves
	// it out.
	SoFar Summary `json:"so_far,omitzero"`
}

// Summary is the output of a batch.
type Summary struct {
	Billed int `json:"billed"`
	Failed int `json:"failed"`
	Cents  int `json:"cents"`
	// Failures are the first of those that failed.
	Failures []Failure `json:"failures,omitempty"`
}

// Failure is a customer that was not billed, and why.
type Failure struct {
	Customer int    `json:"customer"`
	Why      string `json:"why"`
}

// keptFailures bounds the list: a summary goes from one execution to the next, and has to stay
// small.
const keptFailures = 100

// Progress is the custom status of a batch.
type Progress struct {
	Billed int `json:"billed"`
	Failed int `json:"failed"`
	Of     int `json:"of"`
}

// Invoice is the input of Send, which prints and sends it.
type Invoice struct {
	Month    string `json:"month"`
	Customer int    `json:"customer"`
	TakesMS  int    `json:"takes_ms,omitempty"`
}

// The definitions.
var (
	Bill = orchestration.Define[Job, Summary]("bill")
	// Send sends an invoice and gives its cents. An unknown address is not tried again, everything
	// else is.
	Send = activity.Define[Invoice, int]("send", activity.Retry(4, activity.NonRetryableTypes(unknownAddress)),
		activity.StartToClose(time.Minute))
	// Status is how far a batch is.
	Status = orchestration.DefineStatus[Progress]()
)

// Types of errors.
const unknownAddress, badJob = "unknown_address", "bad_job"

// bill bills the next customers, and continues as new until all are billed.
func bill(ctx *orchestration.Context, job Job) (Summary, error) {
	job.Customers, job.InFlight, job.PerExecution = cmp.Or(job.Customers, 5_000), cmp.Or(job.InFlight, 100),
		cmp.Or(job.PerExecution, 1_000)
	if min(job.Customers, job.InFlight, job.PerExecution) < 0 {
		return Summary{}, orchestration.Errorf(badJob, "there is a number below zero")
	}
	sum := &job.SoFar
	next := sum.Billed + sum.Failed + 1
	last := min(next+job.PerExecution-1, job.Customers)

	// A lane takes the next customer, again and again. Lanes switch only where they wait, so they
	// need no locks.
	lane := func(ctx *orchestration.Context) (end struct{}, err error) {
		for next <= last && !ctx.ShouldContinueAsNew() {
			invoice := Invoice{job.Month, next, job.EachMS}
			next++
			cents, err := Send.Call(ctx, invoice)
			if err != nil && ctx.Err() != nil {
				//lint:ignore nilerr the batch is cancelled: this customer is neither billed nor a failure
				return end, nil
			}
			sum.add(invoice.Customer, cents, err)
			sum.tell(ctx, job.Customers)
		}
		return end, nil
	}
	lanes := make([]orchestration.Awaitable, min(job.InFlight, last-next+1))
	for i := range lanes {
		lanes[i] = orchestration.Go(ctx, lane)
	}
	_ = ctx.WaitAll(lanes...) // ctx.Err is its error, and set also when the lanes ended just before
	if ctx.Err() == nil && next <= job.Customers {
		return Bill.ContinueAsNew(ctx, job)
	}
	return *sum, nil // also when it was cancelled: it counts as cancelled, and this is its output
}

// add counts a customer.
func (s *Summary) add(customer, cents int, err error) {
	if err == nil {
		s.Billed++
		s.Cents += cents
		return
	}
	s.Failed++
	if len(s.Failures) < keptFailures {
		why := err.Error()
		if e, ok := errors.AsType[*failure.Error](err); ok {
			why = e.Message // the error of send, without its origin
		}
		s.Failures = append(s.Failures, Failure{customer, why})
	}
}

// tell sets the status a hundred times in all: each time costs an event.
func (s *Summary) tell(ctx *orchestration.Context, of int) {
	if done := s.Billed + s.Failed; done%max(of/100, 1) == 0 {
		Status.Set(ctx, Progress{s.Billed, s.Failed, of})
	}
}

// send pretends to print an invoice and to send it. A customer owes as many cents as its number
// says.
func send(ctx context.Context, i Invoice) (int, error) {
	info := activity.Info(ctx)
	activity.Logger(ctx).Debug("send", "customer", i.Customer, "key", info.IdempotencyKey)
	select {
	case <-time.After(time.Duration(i.TakesMS) * time.Millisecond):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	switch {
	case i.Customer%1000 == 0:
		return 0, activity.Errorf(unknownAddress, "nobody knows where customer %d lives", i.Customer)
	case i.Customer%100 == 0 && info.Attempt == 1:
		return 0, errors.New("the printer is out of paper")
	}
	return i.Customer, nil
}

// parts is the whole program.
var parts = []app.Part{Bill.Bind(bill), Send.Bind(send), app.Demo(demo)}

func main() { app.Main(parts...) }
