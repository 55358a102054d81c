package jobserver

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// burst is for how many seconds a caller may save up requests.
const burst = 2

// limits bounds the requests of each caller.
type limits struct {
	rate float64 // of callers that have none of their own; 0: no bound
	now  func() time.Time

	mu sync.Mutex
	of map[string]*rate.Limiter // by name, so that reading the file again gives no new burst
}

func newLimits(now func() time.Time, perSecond float64) *limits {
	return &limits{rate: perSecond, now: now, of: make(map[string]*rate.Limiter)}
}

// wait counts a request of a caller; nil stands for all callers without access control. If the
// request exceeds the limit, it returns the time until there is room again, and 0 otherwise.
func (l *limits) wait(c *Caller) (wait time.Duration) {
	name, perSecond := "", l.rate
	if c != nil {
		name = c.Name
		perSecond = or(c.Rate, perSecond)
	}
	if perSecond <= 0 {
		return 0
	}
	now := l.now()
	r := l.limiter(name, perSecond, now).ReserveN(now, 1)
	if wait = r.DelayFrom(now); wait > 0 {
		r.CancelAt(now) // a refused caller has used nothing
	}
	return wait
}

func (l *limits) limiter(name string, perSecond float64, now time.Time) *rate.Limiter {
	most := int(min(max(1, burst*perSecond), 1e9))
	l.mu.Lock()
	defer l.mu.Unlock()
	is, ok := l.of[name]
	if !ok {
		is = rate.NewLimiter(rate.Limit(perSecond), most)
		l.of[name] = is
	}
	if is.Limit() != rate.Limit(perSecond) {
		is.SetLimitAt(now, rate.Limit(perSecond))
		is.SetBurstAt(now, most)
	}
	return is
}
