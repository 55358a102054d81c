package events_test

import (
	"math"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

const sec = events.Duration(time.Second)

func TestRetryPoliciesThatMakeNoSenseAreRefused(t *testing.T) {
	tests := []struct {
		name   string
		policy events.RetryPolicy
		words  []string
	}{
		{"one attempt", events.RetryPolicy{Attempts: 1, Factor: 1}, nil},
		{"exponential", events.RetryPolicy{Attempts: 5, First: sec, Factor: 2, Most: 60 * sec, Jitter: 1}, nil},
		{"fixed needs no factor", events.RetryPolicy{Attempts: 5, First: sec, Growth: events.Fixed}, nil},
		{"linear needs no factor", events.RetryPolicy{Attempts: 5, First: sec, Growth: events.Linear}, nil},
		{"no attempts", events.RetryPolicy{Factor: 2}, []string{"0 attempts", "at least 1"}},
		{"no limit", events.RetryPolicy{Attempts: events.UnlimitedAttempts, Factor: 2}, nil},
		{"fewer than none", events.RetryPolicy{Attempts: -2, Factor: 2}, []string{"-2 attempts"}},
		{"a negative delay", events.RetryPolicy{Attempts: 2, First: -sec, Factor: 2}, []string{"delay", "negative"}},
		{"a negative cap", events.RetryPolicy{Attempts: 2, Most: -sec, Factor: 2}, []string{"delay"}},
		{"a delay beyond a lifetime", events.RetryPolicy{Attempts: 2, First: events.Duration(events.MaxDelay) + 1,
			Factor: 2}, []string{"lifetime"}},
		{"a cap beyond a lifetime", events.RetryPolicy{Attempts: 2, Most: math.MaxInt64, Factor: 2},
			[]string{"lifetime"}},
		{"jitter below 0", events.RetryPolicy{Attempts: 2, Factor: 2, Jitter: -0.1}, []string{"jitter -0.1"}},
		{"jitter above 1", events.RetryPolicy{Attempts: 2, Factor: 2, Jitter: 1.1}, []string{"jitter 1.1"}},
		{"jitter that is no number", events.RetryPolicy{Attempts: 2, Factor: 2, Jitter: math.NaN()},
			[]string{"jitter NaN"}},
		{"a factor that shrinks", events.RetryPolicy{Attempts: 2, Factor: 0.5}, []string{"factor 0.5"}},
		{"no factor", events.RetryPolicy{Attempts: 2}, []string{"factor 0"}},
		{"a factor that is no number", events.RetryPolicy{Attempts: 2, Factor: math.NaN()}, []string{"factor NaN"}},
		{"a factor without bounds", events.RetryPolicy{Attempts: 2, Factor: math.Inf(1)}, []string{"factor +Inf"}},
		{"unknown growth", events.RetryPolicy{Attempts: 2, Growth: "cubic"}, []string{`growth "cubic"`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { wantError(t, tt.policy.Check(), tt.words...) })
	}
}

func TestWhatIsTriedAgain(t *testing.T) {
	policy := events.RetryPolicy{Attempts: 3, Factor: 2, NonRetryableTypes: []string{"declined",
		failure.TimeoutHeartbeat}}
	of := func(kind failure.Kind, typ string) *failure.Error { return &failure.Error{Kind: kind, Type: typ} }
	tests := []struct {
		name     string
		err      *failure.Error
		attempts int
		want     bool
	}{
		{"an application error", of(failure.Application, ""), 1, true},
		{"the last but one attempt", of(failure.Application, ""), 2, true},
		{"the last attempt", of(failure.Application, ""), 3, false},
		{"more attempts than allowed", of(failure.Application, ""), 4, false},
		{"a final error", &failure.Error{Kind: failure.Application, NonRetryable: true}, 1, false},
		{"an excepted type", of(failure.Application, "declined"), 1, false},
		{"another type", of(failure.Application, "busy"), 1, true},
		{"a panic", of(failure.Panicked, ""), 1, true},
		{"infrastructure", of(failure.Infrastructure, ""), 1, true},
		{"no worker in time", of(failure.Timeout, failure.TimeoutScheduleToStart), 1, true},
		{"too long for one attempt", of(failure.Timeout, failure.TimeoutStartToClose), 1, true},
		{"an excepted timeout", of(failure.Timeout, failure.TimeoutHeartbeat), 1, false},
		{"too long altogether", of(failure.Timeout, failure.TimeoutScheduleToClose), 1, false},
		{"cancelled", of(failure.Cancelled, ""), 1, false},
		{"terminated", of(failure.Terminated, ""), 1, false},
		{"nondeterminism", of(failure.Nondeterminism, ""), 1, false},
		{"unregistered", of(failure.Unregistered, ""), 1, false},
		{"over a limit", of(failure.LimitExceeded, ""), 1, false},
		{"conflict", of(failure.Conflict, ""), 1, false},
		{"poison", of(failure.Poison, ""), 1, false},
		{"unreadable", of(failure.Unreadable, ""), 1, false},
		{"a kind nobody knows", of("new", ""), 1, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := policy.Again(tt.err, tt.attempts); got != tt.want {
				t.Errorf("tried again: %v", got)
			}
		})
	}
}

func TestAnEmptyTypeIsNeverExcepted(t *testing.T) {
	policy := events.RetryPolicy{Attempts: 2, Factor: 2, NonRetryableTypes: []string{""}}
	if !policy.Again(&failure.Error{Kind: failure.Application}, 1) {
		t.Error("an error without a type is final")
	}
}

func TestDelaysGrow(t *testing.T) {
	const s = time.Second
	tests := []struct {
		name   string
		policy events.RetryPolicy
		want   []time.Duration // after 1, 2, 3 … attempts
	}{
		{"fixed", events.RetryPolicy{First: 2 * sec, Growth: events.Fixed}, []time.Duration{2 * s, 2 * s, 2 * s}},
		{"fixed with a cap", events.RetryPolicy{First: 2 * sec, Growth: events.Fixed, Most: sec},
			[]time.Duration{s, s}},
		{"linear", events.RetryPolicy{First: 2 * sec, Growth: events.Linear},
			[]time.Duration{2 * s, 4 * s, 6 * s, 8 * s}},
		{"linear with a cap", events.RetryPolicy{First: 2 * sec, Growth: events.Linear, Most: 5 * sec},
			[]time.Duration{2 * s, 4 * s, 5 * s, 5 * s}},
		{"exponential", events.RetryPolicy{First: sec, Factor: 2}, []time.Duration{s, 2 * s, 4 * s, 8 * s}},
		{"exponential by one and a half", events.RetryPolicy{First: 4 * sec, Factor: 1.5},
			[]time.Duration{4 * s, 6 * s, 9 * s}},
		{"exponential with a cap", events.RetryPolicy{First: sec, Factor: 10, Most: 60 * sec},
			[]time.Duration{s, 10 * s, 60 * s, 60 * s}},
		{"no delay", events.RetryPolicy{Factor: 2}, []time.Duration{0, 0, 0}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for i, want := range tt.want {
				if got := tt.policy.Delay(i+1, "incarnation", 1, 4); got != want {
					t.Errorf("after %d attempts: %v, want %v", i+1, got, want)
				}
			}
		})
	}
}

func TestDelaysStayUsableAfterAnyNumberOfAttempts(t *testing.T) {
	for _, attempts := range []int{100, 10_000, math.MaxInt32, math.MaxInt} {
		for _, jitter := range []float64{0, 1} {
			grown := events.RetryPolicy{First: sec, Factor: 1000, Jitter: jitter}
			if got := grown.Delay(attempts, "incarnation", 1, 4); got < 0 || got > events.MaxDelay || jitter == 0 &&
				got != events.MaxDelay {
				t.Errorf("exponential after %d attempts: %v", attempts, got)
			}
			none := events.RetryPolicy{Factor: 1000, Jitter: jitter}
			if got := none.Delay(attempts, "incarnation", 1, 4); got != 0 {
				t.Errorf("no delay after %d attempts: %v", attempts, got)
			}
			linear := events.RetryPolicy{First: sec, Growth: events.Linear, Jitter: jitter}
			if got := linear.Delay(attempts, "incarnation", 1, 4); got < 0 || got > events.MaxDelay {
				t.Errorf("linear after %d attempts: %v", attempts, got)
			}
		}
	}
}

func TestJitterShortensADelayByAtMostItsShare(t *testing.T) {
	policy := events.RetryPolicy{First: 100 * sec, Growth: events.Fixed, Jitter: 0.25}
	const low, high = 75 * time.Second, 100 * time.Second
	shortest, longest := high, low
	for first := range int64(1000) {
		d := policy.Delay(1, "incarnation", 1, first)
		if d < low || d > high {
			t.Fatalf("call %d waits %v", first, d)
		}
		shortest, longest = min(shortest, d), max(longest, d)
	}
	if shortest > low+time.Second || longest < high-time.Second {
		t.Errorf("1000 calls wait between %v and %v: that is not spread", shortest, longest)
	}
}

func TestJitterDependsOnThePlaceOfTheCallOnly(t *testing.T) {
	policy := events.RetryPolicy{First: 100 * sec, Growth: events.Fixed, Jitter: 1}
	base := policy.Delay(1, "incarnation", 1, 4)
	if again := policy.Delay(1, "incarnation", 1, 4); again != base {
		t.Errorf("the same call waits %v and %v", base, again)
	}
	for name, other := range map[string]time.Duration{
		"attempt":     policy.Delay(2, "incarnation", 1, 4),
		"incarnation": policy.Delay(1, "other", 1, 4),
		"execution":   policy.Delay(1, "incarnation", 2, 4),
		"event":       policy.Delay(1, "incarnation", 1, 5),
	} {
		if other == base {
			t.Errorf("another %s makes no difference", name)
		}
	}
}

// A replay must find the delays that history was made with.
func TestJitterStaysAsItIs(t *testing.T) {
	policy := events.RetryPolicy{First: 100 * sec, Factor: 2, Jitter: 0.5}
	for i, want := range []time.Duration{85392043255, 112467623026, 377575542082} {
		if got := policy.Delay(i+1, "9f1c5a0b7e3d2648", 1, 4); got != want {
			t.Errorf("after %d attempts: %d, want %d", i+1, got, want)
		}
	}
}
