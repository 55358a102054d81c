package activity_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

func options(opts ...activity.Option) orchestration.CallOptions {
	var o orchestration.CallOptions
	for _, opt := range opts {
		opt.ApplyActivity(&o)
	}
	return o
}

func TestOptions(t *testing.T) {
	got := options(activity.StartToClose(1), activity.ScheduleToClose(2), activity.ScheduleToStart(3),
		activity.HeartbeatTimeout(4),
		activity.Tag("gpu"), activity.Session("s"))
	want := orchestration.CallOptions{StartToClose: 1, ScheduleToClose: 2, ScheduleToStart: 3, HeartbeatTimeout: 4,
		Tag: "gpu", Session: "s"}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestOptionsForSteps(t *testing.T) {
	var o orchestration.CallOptions
	for _, opt := range []orchestration.StepOption{activity.StartToClose(1), activity.ScheduleToClose(2),
		activity.Retry(3)} {
		opt.ApplyStep(&o)
	}
	if o.StartToClose != 1 || o.ScheduleToClose != 2 || o.Retry.Attempts != 3 {
		t.Errorf("got %+v", o)
	}
	for _, opt := range []activity.Option{activity.Tag("gpu"), activity.Session("s"),
		activity.ScheduleToStart(3), activity.HeartbeatTimeout(4)} {
		if _, ok := opt.(orchestration.StepOption); ok {
			t.Errorf("%T is taken by steps", opt)
		}
	}
}

func TestRetryPolicies(t *testing.T) {
	ms, s := time.Millisecond, time.Second
	for name, c := range map[string]struct {
		opt    activity.CallOption
		delays []time.Duration
	}{
		"default": {activity.Retry(20, activity.Jitter(0)),
			[]time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms}},
		"fixed": {activity.Retry(20, activity.Fixed(s), activity.Jitter(0)), []time.Duration{s, s, s, s}},
		"linear": {activity.Retry(20, activity.Linear(s, 3*s), activity.Jitter(0)),
			[]time.Duration{s, 2 * s, 3 * s, 3 * s}},
		"exponential": {activity.Retry(20, activity.Exponential(s, 3, 20*s), activity.Jitter(0)),
			[]time.Duration{s, 3 * s, 9 * s, 20 * s}},
		"at once": {activity.Retry(20, activity.Fixed(0)), []time.Duration{0, 0, 0, 0}},
	} {
		p := options(c.opt).Retry
		var got []time.Duration
		for i := range c.delays {
			got = append(got, p.Delay(i+1, "incarnation", 1, 1))
		}
		if !slices.Equal(got, c.delays) || p.Check() != nil {
			t.Errorf("%s: delays %v, want %v; %v", name, got, c.delays, p.Check())
		}
	}
	if d := options(activity.Retry(20, activity.Jitter(0))).Retry.Delay(15, "incarnation", 1, 1); d != 30*s {
		t.Errorf("a late delay is %v", d)
	}
}

func TestJitterTakesOff(t *testing.T) {
	for share, least := range map[float64]time.Duration{0.2: 80 * time.Millisecond, 1: 0} {
		p := options(activity.Retry(20, activity.Jitter(share))).Retry
		seen := make(map[time.Duration]bool)
		for first := range int64(50) {
			d := p.Delay(1, "incarnation", 1, first)
			seen[d] = true
			if d < least || d > 100*time.Millisecond || d != p.Delay(1, "incarnation", 1, first) {
				t.Errorf("share %v: delay %v", share, d)
			}
		}
		if len(seen) < 40 {
			t.Errorf("share %v: only %d different delays", share, len(seen))
		}
	}
}

func TestNonRetryableTypesAddUp(t *testing.T) {
	p := options(activity.Retry(5, activity.NonRetryableTypes("a"), activity.NonRetryableTypes("b", "c"))).Retry
	if !slices.Equal(p.NonRetryableTypes, []string{"a", "b", "c"}) {
		t.Errorf("except %q", p.NonRetryableTypes)
	}
	again := func(err error) bool { return p.Again(failure.From(err), 1) }
	if again(activity.Errorf("b", "")) || !again(activity.Errorf("d", "")) || !again(errors.New("plain")) ||
		again(activity.NonRetryable(errors.New("plain"))) {
		t.Error("the wrong errors are tried again")
	}
}

func TestLaterOptionsWin(t *testing.T) {
	got := options(activity.Retry(5, activity.NonRetryableTypes("a")), activity.Retry(2), activity.StartToClose(1),
		activity.StartToClose(2))
	if got.Retry.Attempts != 2 || len(got.Retry.NonRetryableTypes) != 0 || got.StartToClose != 2 {
		t.Errorf("got %+v, %+v", got, got.Retry)
	}
}

// called gives what an activity was executed for, and what the orchestration got.
func called(t *testing.T, contract activity.Definition[string, string],
	opts ...activity.Option) (*activity.ExecutionInfo, error) {
	t.Helper()
	var info *activity.ExecutionInfo
	o := orchestration.Define[string, string]("o")
	env := rondotest.New(t,
		o.Bind(func(ctx *orchestration.Context, in string) (string, error) { return contract.Call(ctx, in, opts...) }),
		contract.Bind(func(ctx context.Context, in string) (string, error) {
			i := activity.Info(ctx)
			info = &i
			return in, nil
		}),
	)
	h, err := o.Start(t.Context(), env, "in")
	if err != nil {
		t.Fatal(err)
	}
	_, err = h.Wait(t.Context())
	return info, err
}

func TestOptionsOfTheCallWinOverThoseOfTheContract(t *testing.T) {
	contract := activity.Define[string, string]("echo", activity.Tag("cpu"), activity.Session("s"),
		activity.ScheduleToClose(time.Hour))
	for range 2 { // the contract stays as it is
		info, err := called(t, contract)
		if err != nil || info.Tag != "cpu" || info.Session != "s" || info.Deadline.IsZero() {
			t.Errorf("by itself: %+v, %v", info, err)
		}
		info, err = called(t, contract, activity.Tag("gpu"))
		if err != nil || info.Tag != "gpu" || info.Session != "s" {
			t.Errorf("with options: %+v, %v", info, err)
		}
	}
}

func TestBadOptions(t *testing.T) {
	for says, opt := range map[string]activity.Option{
		"StartToClose: -1ns is not between":         activity.StartToClose(-1),
		"ScheduleToClose: 2562047h47m16.854775807s": activity.ScheduleToClose(math.MaxInt64),
		"ScheduleToStart: -1ns":                     activity.ScheduleToStart(-1),
		"HeartbeatTimeout: -1ns":                    activity.HeartbeatTimeout(-1),
		`tag "a\nb": it contains`:                   activity.Tag("a\nb"),
		`session id "\xff": it is not valid UTF-8`:  activity.Session("\xff"),
		"0 attempts; the first one counts":          activity.Retry(0),
		"a delay is negative or beyond a lifetime":  activity.Retry(2, activity.Fixed(-1)),
		"jitter 1.5 is not between 0 and 1":         activity.Retry(2, activity.Jitter(1.5)),
		"factor 0.5 is not between 1 and 1000":      activity.Retry(2, activity.Exponential(1, 0.5, 2)),
		"jitter NaN is not between":                 activity.Retry(2, activity.Jitter(math.NaN())),
	} {
		info, err := called(t, echo, opt)
		mustSay(t, err, `activity "echo": `, says)
		if !errors.Is(err, orchestration.OfType("invalid_options")) || info != nil {
			t.Errorf("got %v; it was executed: %v", err, info != nil)
		}
	}
}
