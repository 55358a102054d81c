package events

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/rondo-run/rondo/pkg/failure"
)

// RetryPolicy sets when an activity or a step is retried, and after which delay. It stands in the
// event that schedules an activity, so that a change of the code does not change the policy of
// running instances.
type RetryPolicy struct {
	Attempts          int      `json:"attempts"` // altogether, the first one included, or UnlimitedAttempts
	First             Duration `json:"first,omitempty"`
	Growth            Growth   `json:"growth,omitempty"`
	Factor            float64  `json:"factor,omitempty"` // for Exponential
	Most              Duration `json:"most,omitempty"`
	Jitter            float64  `json:"jitter,omitempty"`              // 0 … 1: the share of the delay that is left to chance
	NonRetryableTypes []string `json:"non_retryable_types,omitempty"` // types of errors that are not retried
}

// UnlimitedAttempts is the number of attempts of a policy that never gives up by itself.
const UnlimitedAttempts = -1

// Growth says how the delay grows from attempt to attempt.
type Growth string

// The ways.
const (
	Exponential Growth = ""
	Linear      Growth = "linear"
	Fixed       Growth = "fixed"
)

// Check validates a policy.
func (r *RetryPolicy) Check() error {
	switch {
	case r.Attempts < 1 && r.Attempts != UnlimitedAttempts:
		return fmt.Errorf("retry: %d attempts; the first one counts, so at least 1; RetryForever has no limit",
			r.Attempts)
	case r.First < 0 || r.Most < 0 || r.First > Duration(MaxDelay) || r.Most > Duration(MaxDelay):
		return fmt.Errorf("retry: a delay is negative or beyond a lifetime")
	case !(r.Jitter >= 0 && r.Jitter <= 1):
		return fmt.Errorf("retry: jitter %v is not between 0 and 1", r.Jitter)
	case r.Growth != Exponential && r.Growth != Linear && r.Growth != Fixed:
		return fmt.Errorf("retry: growth %q is none of linear and fixed", r.Growth)
	case r.Growth == Exponential && !(r.Factor >= 1 && r.Factor <= 1000):
		return fmt.Errorf("retry: factor %v is not between 1 and 1000", r.Factor)
	}
	return nil
}

// Again tells whether an error after so many attempts is worth another one.
func (r *RetryPolicy) Again(err *failure.Error, attempts int) bool {
	if err.NonRetryable || r.Attempts != UnlimitedAttempts && attempts >= r.Attempts {
		return false
	}
	switch err.Kind {
	case failure.Application, failure.Panicked, failure.Infrastructure:
	case failure.Timeout:
		if err.Type == failure.TimeoutScheduleToClose {
			return false
		}
	default:
		return false
	}
	return err.Type == "" || !slices.Contains(r.NonRetryableTypes, err.Type)
}

// Delay is how long to wait after so many attempts. The part that is left to chance is drawn from
// the call's place in history, so it is the same in every replay and different between instances.
func (r *RetryPolicy) Delay(attempts int, incarnation string, execution, first int64) time.Duration {
	if r.First == 0 {
		return 0
	}
	d := float64(r.First)
	switch r.Growth {
	case Fixed:
	case Linear:
		d *= float64(attempts)
	case Exponential:
		d *= math.Pow(r.Factor, float64(attempts-1))
	}
	most := float64(MaxDelay)
	if r.Most > 0 {
		most = float64(r.Most)
	}
	d = min(d, most)
	if r.Jitter > 0 {
		h := sha256.New()
		h.Write([]byte(incarnation))
		for _, n := range []int64{execution, first, int64(attempts)} {
			h.Write(binary.BigEndian.AppendUint64(nil, uint64(n)))
		}
		chance := float64(binary.BigEndian.Uint64(h.Sum(nil))>>11) / (1 << 53)
		d *= 1 - float64(r.Jitter*chance) // rounded by itself, so that every processor gets the same
	}
	return time.Duration(d)
}
