package guide

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

func TestPay(t *testing.T) {
	env := virtual(t, Pay.Bind(pay), Charge.Bind(charge))
	receipt, err := Pay.Run(t.Context(), env, Bill{"1111", 4500})
	if err != nil || !strings.HasPrefix(receipt, "receipt-id-1/") {
		t.Errorf("%q, %v", receipt, err)
	}
	_, err = Pay.Run(t.Context(), env, Bill{"expired", 4500})
	wantError(t, err, `ask for another card: activity "charge": the card has expired`)
	wantIs(t, err, orchestration.OfType("not_paid"), orchestration.OfType("card_declined"))
	_, err = Pay.Run(t.Context(), env, Bill{})
	wantError(t, err, `activity "charge": the bill has no card`)
}

// TestPayIsPatient has a bank that does not answer.
func TestPayIsPatient(t *testing.T) {
	var env *rondotest.Env
	var began time.Time
	var after []time.Duration
	works := 6
	env = virtual(t, Pay.Bind(pay), Charge.Bind(func(context.Context, Bill) (string, error) {
		after = append(after, env.Now().Sub(began))
		if len(after) < works {
			return "", errors.New("the bank does not answer")
		}
		return "receipt", nil
	}))
	began = env.Now()
	_, err := Pay.Run(t.Context(), env, Bill{"1111", 4500})
	wantError(t, err, `activity "charge": the bank does not answer (after 5 attempts)`)
	want(t, "attempts", len(after), 5)
	for i, delay := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second} {
		if took := after[i+1] - after[i]; took > delay || took < delay*8/10 {
			t.Errorf("delay %d is %v", i+1, took)
		}
	}

	works, after = 3, nil
	if receipt, err := Pay.Run(t.Context(), env, Bill{"1111", 4500}); receipt != "receipt" || err != nil {
		t.Errorf("%q, %v", receipt, err)
	}
}

func TestPayTakesTooLong(t *testing.T) {
	env := virtual(t, Pay.Bind(pay), rondotest.Takes(Charge.Bind(charge), time.Minute))
	_, err := Pay.Run(t.Context(), env, Bill{"1111", 4500})
	wantError(t, err, `the bank is too slow today: activity "charge": it took longer than 10s (after 5 attempts)`)
	wantIs(t, err, orchestration.OfType("not_paid"))
}

// TestTimeLimits checks the table of time limits.
func TestTimeLimits(t *testing.T) {
	slow := rondotest.Takes(Charge.Bind(charge), 2*time.Hour)
	fails := Charge.Bind(func(context.Context, Bill) (string, error) {
		return "", errors.New("the bank does not answer")
	})
	for _, c := range []struct {
		name      string
		worker    rondotest.Part
		opts      []activity.Option
		kind, typ string
		text      string
	}{
		{"nobody takes it", nil, []activity.Option{activity.ScheduleToStart(time.Minute), activity.Retry(1)}, "timeout",
			"schedule_to_start", `activity "charge": no worker took it up in time`},
		{"it takes too long", slow, []activity.Option{activity.Retry(1)}, "timeout", "start_to_close",
			`activity "charge": it took longer than 10s`},
		{"overall", slow, []activity.Option{activity.StartToClose(0), activity.ScheduleToClose(time.Hour)}, "timeout",
			"schedule_to_close", `activity "charge": it was not done within its time limit from schedule to close`},
		{"overall, with no time for another attempt", fails,
			[]activity.Option{activity.ScheduleToClose(5 * time.Second)}, "application", "",
			`activity "charge": the bank does not answer (after 3 attempts)`},
		{"no attempts", fails, []activity.Option{activity.Retry(0)}, "application", "invalid_options",
			`activity "charge": retry: 0 attempts; the first one counts, so at least 1; RetryForever has no limit`},
		{"panic", Charge.Bind(func(context.Context, Bill) (string, error) {
			panic("no bank")
		}), []activity.Option{activity.Retry(2)}, "panicked", "",
			`activity "charge": panic: no bank (after 2 attempts)`},
	} {
		t.Run(c.name, func(t *testing.T) {
			parts := []rondotest.Part{Pay.Bind(func(ctx *orchestration.Context, b Bill) (string, error) {
				return Charge.Call(ctx, b, c.opts...)
			})}
			if c.worker != nil {
				parts = append(parts, c.worker)
			}
			_, err := Pay.Run(t.Context(), virtual(t, parts...), Bill{"1111", 1})
			wantError(t, err, c.text)
			var e *failure.Error
			if !errors.As(err, &e) || string(e.Kind) != c.kind || e.Type != c.typ {
				t.Errorf("%+v", e)
			}
		})
	}
}

// TestNoWorker has no worker for the activity, and no time limit.
func TestNoWorker(t *testing.T) {
	env := virtual(t, Pay.Bind(func(ctx *orchestration.Context, b Bill) (string, error) { return Charge.Call(ctx, b) }))
	_, err := Pay.Run(t.Context(), env, Bill{"1111", 1}, orchestration.ID("pay-1"))
	wantError(t, err, `rondotest: instance "pay-1" is running, and nothing more will happen`+"\n"+
		`  it waits for activity "charge" (event 2), which is not registered in this test`)
}
