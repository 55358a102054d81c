package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

// small is a job that continues as new several times.
var small = Job{Month: "2027-01", Customers: 1_100, InFlight: 20, PerExecution: 250}

// wantSummary checks the summary of a whole job: each customer owes as many cents as the number
// says, so the sum tells whether each was counted once.
func wantSummary(t *testing.T, got Summary, customers int) {
	t.Helper()
	failed, cents := customers/1000, customers*(customers+1)/2
	for c := 1000; c <= customers; c += 1000 {
		cents -= c
	}
	if got.Billed != customers-failed || got.Failed != failed || got.Cents != cents || len(got.Failures) != failed {
		t.Errorf("%+v, want %d billed with %d cents, and %d failures", got, customers-failed, cents, failed)
	}
	for i, f := range got.Failures {
		if f.Customer != 1000*(i+1) || !strings.Contains(f.Why, "nobody knows where customer") {
			t.Errorf("failure %d is %+v", i, f)
		}
	}
}

func TestBill(t *testing.T) {
	for name, how := range map[string][]rondotest.Part{
		"warm":  nil,
		"cold":  {rondotest.Cold()}, // every round replays, as after a restart
		"chaos": {rondotest.Chaos(7)},
	} {
		t.Run(name, func(t *testing.T) {
			env := rondotest.New(t, append(how, Bill.Bind(bill), Send.Bind(send))...)
			h, err := Bill.Start(t.Context(), env, small, orchestration.ID("bill-1"))
			if err != nil {
				t.Fatal(err)
			}
			got, err := h.Wait(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			wantSummary(t, got, small.Customers)
			if p, ok, err := Status.Read(t.Context(), env, h.ID); err != nil || !ok || p != (Progress{1099, 1, 1100}) {
				t.Errorf("at the end, its status is %+v", p)
			}
			histories := env.ExportAll(h.ID)
			if len(histories) != 5 {
				t.Errorf("there are %d executions, want 5", len(histories))
			}
			if n := len(env.History(h.ID)); n > 500 {
				t.Errorf("the last history has %d events", n)
			}
		})
	}
}

// TestInFlight lets each invoice take a second. So many are sent at once as was said: not more, and
// not fewer.
func TestInFlight(t *testing.T) {
	env := rondotest.New(t, Bill.Bind(bill), rondotest.Takes(Send.Bind(send), time.Second))
	began := env.Now()
	h, err := Bill.Start(t.Context(), env, Job{Month: "2027-01", Customers: 90, InFlight: 10, PerExecution: 30},
		orchestration.ID("bill-1"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := h.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wantSummary(t, got, 90)
	if took := env.Now().Sub(began); took < 9*time.Second || took >= 10*time.Second {
		t.Errorf("90 customers, ten at a time, have taken %v", took)
	}
	open, most := 0, 0
	for _, e := range env.History(h.ID) {
		switch e.Fact.(type) {
		case *events.ActivityScheduled:
			open++
		case *events.ActivityCompleted:
			open--
		default:
		}
		most = max(most, open)
	}
	if most != 10 {
		t.Errorf("up to %d were sent at the same time", most)
	}
}

// TestCancel cancels a batch. Its output has the billed customers all the same; invoices in flight
// are not failures.
func TestCancel(t *testing.T) {
	env := rondotest.New(t, Bill.Bind(bill), rondotest.Takes(Send.Bind(send), time.Second))
	h, err := Bill.Start(t.Context(), env, Job{Month: "2027-01", Customers: 90, InFlight: 10, PerExecution: 30},
		orchestration.ID("bill-1"))
	if err != nil {
		t.Fatal(err)
	}
	env.Advance(4500 * time.Millisecond)
	if err := h.Cancel(t.Context(), "not this month"); err != nil {
		t.Fatal(err)
	}
	got, err := h.Wait(t.Context())
	if !errors.Is(err, orchestration.ErrCancelled) {
		t.Error(err)
	}
	wantSummary(t, got, 40)
}

// TestManyFailures lets everything fail: the list in the summary stays short, the number is right.
func TestManyFailures(t *testing.T) {
	env := rondotest.New(t, Bill.Bind(bill), Send.Bind(func(context.Context, Invoice) (int, error) {
		return 0, activity.NonRetryable(errors.New("the printer has burnt down"))
	}))
	got, err := Bill.Run(t.Context(), env, Job{Month: "2027-01", Customers: 300, PerExecution: 100})
	if err != nil || got.Billed != 0 || got.Failed != 300 || len(got.Failures) != keptFailures {
		t.Errorf("%d billed, %d failed, %d of them listed, %v", got.Billed, got.Failed, len(got.Failures), err)
	}
}

func TestBadJob(t *testing.T) {
	env := rondotest.New(t, Bill.Bind(bill), Send.Bind(send))
	for _, job := range []Job{{Customers: -1}, {InFlight: -1}, {PerExecution: -1}} {
		if _, err := Bill.Run(t.Context(), env, job); !errors.Is(err, orchestration.OfType(badJob)) {
			t.Errorf("%+v: %v", job, err)
		}
	}
}
