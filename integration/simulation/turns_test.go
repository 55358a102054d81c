package simulation

import (
	"cmp"
	"slices"
	"sync"
	"testing/synctest"
)

// turns lets the things of one virtual moment happen one at a time. Whatever leaves or reaches a
// process takes a turn: until then it is listed. A turn begins when all goroutines of the world are
// blocked, so all that the process did because of the turn before is done, and listed.
//
// Without turns, the order would be the Go scheduler's choice: goroutines that are woken at one
// moment run in any order, and in parallel.
type turns struct {
	mu     sync.Mutex
	listed []turn
	taken  int
	some   chan struct{} // has one if something is listed
	ended  bool          // turns are not waited for any more
}

// turn is one thing that is to happen.
type turn struct {
	after     int // how many turns were taken when it was listed
	who, what string
	happens   func()
}

func newTurns() *turns { return &turns{some: make(chan struct{}, 1)} }

// list has something happen in a turn of its own. Things that were listed during one turn have no
// order of their own, because several goroutines list them: they happen in the order of their
// names.
func (t *turns) list(who, what string, happens func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		go happens()
		return
	}
	t.listed = append(t.listed, turn{t.taken, who, what, happens})
	select {
	case t.some <- struct{}{}:
	default:
	}
}

// wait blocks until it is the caller's turn.
func (t *turns) wait(who, what string) {
	granted := make(chan struct{})
	t.list(who, what, func() { close(granted) })
	<-granted
}

// take lets the turns be taken, until over is closed. It is the only caller of synctest.Wait.
func (t *turns) take(over <-chan struct{}) {
	defer t.end()
	for {
		select {
		case <-t.some:
		case <-over:
			return
		}
		for synctest.Wait(); ; synctest.Wait() {
			x, ok := t.next()
			if !ok {
				break
			}
			go x.happens()
		}
	}
}

// end lets the rest happen at once, so that goroutines that outlive the world end.
func (t *turns) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	for _, x := range t.listed {
		go x.happens()
	}
	t.listed = nil
}

// next removes the next turn from the list.
func (t *turns) next() (x turn, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.listed) == 0 {
		return x, false
	}
	first := 0
	for i, x := range t.listed {
		if x.compare(t.listed[first]) < 0 {
			first = i
		}
	}
	x = t.listed[first]
	t.listed = slices.Delete(t.listed, first, first+1)
	t.taken++
	return x, true
}

func (x turn) compare(y turn) int {
	return cmp.Or(cmp.Compare(x.after, y.after), cmp.Compare(x.who, y.who), cmp.Compare(x.what, y.what))
}
