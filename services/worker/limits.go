package worker

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/rondo-run/rondo/internal/broker"
)

const (
	// gather is how long a queue that has more work than there are slots waits for more than one of
	// them, so that it asks for many at once.
	gather = time.Millisecond
	// promiseFor is how long slots are kept for a queue that has asked for work and gets less than
	// it did the last time.
	promiseFor = 10 * time.Millisecond
	// standFor is how long a delivery that finds no slot waits for one, before another worker may
	// have it.
	standFor = 100 * time.Millisecond
	// soon is how long the activities of a queue take at most, on average, if some of their work is
	// taken before there is a slot for it.
	soon = standFor / 4
	// maxStanding bounds how much stands that has come by itself.
	maxStanding = 1000
)

// limits share the slots of a worker among its queues. A queue asks how many deliveries it may
// take. Slots are promised to those queues only that have brought all they asked for the last time;
// for the others, waiting for work that may never come, a slot is only taken when a delivery is
// there. So an idle queue keeps nobody from working, and sometimes there is a delivery more than
// slots: it stands for a moment, and then goes back. Of activities that take no longer than a
// moment, a few deliveries are taken ahead and stand on purpose, so that a slot does not have to
// wait for the broker each time it becomes free; not while another queue waits for slots, though.
type limits struct {
	mu         sync.Mutex
	all        *pool
	tags       map[string]*pool
	activities map[string]*pool
	rates      map[string]*rate.Limiter
	lines      int // queues
	hungry     []*line
	standing   []*stand
	gathering  bool
	closed     bool
}

// pool is a number of slots.
type pool struct{ size, used, promised int }

func (p *pool) free() int { return p.size - p.used - p.promised }

// line is a queue's side of the limits.
type line struct {
	pools  []*pool
	rate   *rate.Limiter // nil: none
	enough int           // as many free slots are worth a request
	most   int           // slots at most
	takes  time.Duration // how long a slot is used for, on average, lately; 0: not known
	loaded bool          // the last request brought all it asked for
	stands int           // deliveries
	hungry bool
	wake   chan struct{}
}

// stand is a delivery that waits for a slot.
type stand struct {
	line  *line
	begin func()
	lost  func()
	timer *time.Timer
}

func newLimits(c Config) *limits {
	l := &limits{all: &pool{size: c.Slots}, tags: make(map[string]*pool), activities: make(map[string]*pool),
		rates: make(map[string]*rate.Limiter)}
	for tag, n := range c.SlotsPerTag {
		l.tags[tag] = &pool{size: n}
	}
	for name, n := range c.SlotsPerActivity {
		l.activities[name] = &pool{size: n}
	}
	for name, r := range c.RatePerActivity {
		l.rates[name] = rate.NewLimiter(rate.Limit(r), max(1, int(r/10)))
	}
	return l
}

// line makes the side of a queue.
func (l *limits) line(q broker.Queue) *line {
	n := &line{pools: []*pool{l.all}, rate: l.rates[q.Activity], wake: make(chan struct{}, 1)}
	for _, p := range []*pool{l.tags[q.Tag], l.activities[q.Activity]} {
		if p != nil {
			n.pools = append(n.pools, p)
		}
	}
	n.most = math.MaxInt
	for _, p := range n.pools {
		n.most = min(n.most, p.size)
	}
	n.enough = max(1, n.most/4)
	if n.rate != nil {
		n.enough = 1
	}
	l.mu.Lock()
	l.lines++
	l.mu.Unlock()
	return n
}

// room is how many deliveries the limits allow just now.
func (n *line) room(now time.Time) int {
	room := math.MaxInt
	for _, p := range n.pools {
		room = min(room, p.free())
	}
	if n.rate != nil {
		room = min(room, int(n.rate.TokensAt(now)))
	}
	return max(room, 0)
}

// ahead is how many deliveries a queue may take that no slot is free for.
func (l *limits) ahead(n *line) int {
	alone := len(l.hungry) == 0 || len(l.hungry) == 1 && n.hungry
	if !alone || !n.loaded || n.rate != nil || n.takes == 0 || n.takes > soon {
		return 0
	}
	ahead := max(1, n.most/8)
	if missing := ahead - n.stands; missing >= max(1, ahead/2) { // not for each of many alone
		return missing
	}
	return 0
}

// hasRoom tells whether work that comes by itself gets a slot at once, or soon because that is how
// long activities of the queue take. What waits in the broker goes first.
func (l *limits) hasRoom(n *line) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	others := len(l.hungry) > 1 || len(l.hungry) == 1 && !n.hungry
	switch {
	case l.closed, n.loaded, n.rate != nil:
		return false
	case n.fits():
		return true
	case others || n.takes == 0 || len(l.standing) >= maxStanding:
		return false
	}
	return n.takes*time.Duration(n.stands+1)/time.Duration(n.most) <= soon
}

// note counts how long a slot was used.
func (n *line) note(took time.Duration) {
	if n.takes == 0 {
		n.takes = took
	}
	n.takes += (took - n.takes) / 8
	n.takes = max(n.takes, 1)
}

// untilRate is how long it takes until the rate allows another one.
func (n *line) untilRate(now time.Time) time.Duration {
	if n.rate == nil {
		return 0
	}
	missing := 1 - n.rate.TokensAt(now)
	if missing <= 0 {
		return 0
	}
	return time.Duration(missing/float64(n.rate.Limit())*float64(time.Second)) + time.Microsecond
}

func (n *line) use(by int) {
	for _, p := range n.pools {
		p.used += by
	}
}

func (n *line) promise(by int) {
	for _, p := range n.pools {
		p.promised += by
	}
}

// grant is what a queue may take.
type grant struct {
	limits   *limits
	line     *line
	n        int
	promised int
	timer    *time.Timer
}

// ask waits until a queue may take something, and tells how much. It gives nil when the context
// ends.
func (l *limits) ask(ctx context.Context, n *line) *grant {
	l.mu.Lock()
	defer l.mu.Unlock()
	woken := false
	for {
		now := time.Now()
		room := n.room(now)
		if room > 0 && (woken || !n.loaded || room >= n.enough) {
			return l.grant(n, room)
		}
		if ahead := l.ahead(n); room == 0 && ahead > 0 {
			l.sated(n)
			return &grant{limits: l, line: n, n: ahead}
		}
		if !n.hungry {
			n.hungry = true
			l.hungry = append(l.hungry, n)
		}
		if room > 0 {
			l.gather()
		}
		wait := n.untilRate(now)
		l.mu.Unlock()
		woken = n.sleep(ctx, wait)
		l.mu.Lock()
		if ctx.Err() != nil {
			l.sated(n)
			return nil
		}
	}
}

// sleep waits until there may be room.
func (n *line) sleep(ctx context.Context, wait time.Duration) bool {
	var over <-chan time.Time
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-n.wake:
	case <-over:
	case <-ctx.Done():
	}
	return true
}

func (l *limits) grant(n *line, room int) *grant {
	l.sated(n)
	g := &grant{limits: l, line: n}
	if !n.loaded {
		g.n = max(1, room/max(1, l.lines))
		l.feed(false) // it takes no slot yet: the next one may ask, too
		return g
	}
	g.n = max(1, room/(1+len(l.hungry)))
	g.promised = g.n
	n.promise(g.n)
	g.timer = time.AfterFunc(promiseFor, g.loosen)
	l.feed(false)
	return g
}

func (l *limits) sated(n *line) {
	if n.hungry {
		n.hungry = false
		l.hungry = slices.DeleteFunc(l.hungry, func(x *line) bool { return x == n })
	}
}

// loosen gives up the promise.
func (g *grant) loosen() {
	g.limits.mu.Lock()
	defer g.limits.mu.Unlock()
	g.line.promise(-g.promised)
	g.promised = 0
	g.limits.feed(false)
}

// close ends a grant that has brought so many.
func (g *grant) close(taken int) {
	if g.timer != nil {
		g.timer.Stop()
	}
	l := g.limits
	l.mu.Lock()
	defer l.mu.Unlock()
	g.line.promise(-g.promised)
	g.promised = 0
	g.line.loaded = taken >= g.n
	l.feed(false)
}

// unused tells that what came needs no slot.
func (g *grant) unused() {
	g.limits.mu.Lock()
	defer g.limits.mu.Unlock()
	if g.promised > 0 {
		g.promised--
		g.line.promise(-1)
		g.limits.feed(false)
	}
}

// arrive gives a delivery its slot: at once, or soon, or never. If the rate does not allow it, it
// says how long that takes; then neither is called.
func (l *limits) arrive(n *line, g *grant, patience time.Duration, begin, lost func()) (after time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if n.rate != nil && !n.rate.AllowN(now, 1) {
		if g != nil && g.promised > 0 {
			g.promised--
			n.promise(-1)
		}
		return max(n.untilRate(now), time.Millisecond)
	}
	switch {
	case g != nil && g.promised > 0:
		g.promised--
		n.promise(-1)
		fallthrough
	case n.fits():
		n.use(1)
		go begin()
	case l.closed:
		go lost()
	default:
		s := &stand{line: n, begin: begin, lost: lost}
		n.stands++
		s.timer = time.AfterFunc(patience, func() { l.leave(s) })
		l.standing = append(l.standing, s)
	}
	return 0
}

func (n *line) fits() bool {
	return !slices.ContainsFunc(n.pools, func(p *pool) bool { return p.free() <= 0 })
}

// leave ends the wait of a delivery that has got no slot.
func (l *limits) leave(s *stand) {
	l.mu.Lock()
	i := slices.Index(l.standing, s)
	if i >= 0 {
		l.standing = slices.Delete(l.standing, i, i+1)
		s.line.stands--
		s.line.takes = max(s.line.takes, standFor) // it was not soon
	}
	l.mu.Unlock()
	if i >= 0 {
		s.lost()
	}
}

// close sends away what stands, and what comes and finds no slot.
func (l *limits) close() {
	l.mu.Lock()
	standing := l.standing
	l.standing, l.closed = nil, true
	l.mu.Unlock()
	for _, s := range standing {
		s.timer.Stop()
		s.lost()
	}
}

// release gives a slot back that was used for so long.
func (l *limits) release(n *line, took time.Duration) {
	l.mu.Lock()
	n.note(took)
	n.use(-1)
	l.feed(false)
	l.mu.Unlock()
}

// feed gives free slots to deliveries that stand, and then wakes the queue that has waited longest;
// with all, every one that has any room.
func (l *limits) feed(all bool) {
	if len(l.standing) > 0 {
		l.standing = slices.DeleteFunc(l.standing, func(s *stand) bool {
			if !s.line.fits() {
				return false
			}
			s.timer.Stop()
			s.line.stands--
			s.line.use(1)
			go s.begin()
			return true
		})
	}
	if len(l.hungry) == 0 {
		return
	}
	now := time.Now()
	for _, n := range l.hungry {
		room := n.room(now)
		if room == 0 && l.ahead(n) == 0 {
			continue
		}
		if !all && 0 < room && room < n.enough && n.loaded {
			l.gather()
			continue
		}
		select {
		case n.wake <- struct{}{}:
		default:
		}
		if !all {
			return
		}
	}
}

// gather wakes all hungry queues a little later.
func (l *limits) gather() {
	if l.gathering {
		return
	}
	l.gathering = true
	time.AfterFunc(gather, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.gathering = false
		l.feed(true)
	})
}

// crowded reports whether enough deliveries wait for slots.
func (l *limits) crowded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	const least = 16
	return len(l.standing) >= max(l.all.size, least)
}

// used is how many slots are taken.
func (l *limits) used() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.used
}
