package natsbroker

import (
	"strings"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
)

// loads measures how many tasks of each task queue are in direct delivery. A single look would see
// none of most queues that are busy with short tasks, so it is a mean.
type loads struct{ queues sync.Map } // *load, by the tokens "<tag>.<activity>" of their subjects

const (
	// loadSlice and loadSlices divide the time over which the mean is computed: a minute.
	loadSlice  = 10 * time.Second
	loadSlices = 6
)

// load is how long tasks of one queue were in direct delivery, in slices of time.
type load struct {
	mu    sync.Mutex
	slice int64                         // the number of the present slice
	spent [loadSlices + 1]time.Duration // of the present slice and those before it, by number
}

// note records that a task was in direct delivery from a moment on until now.
func (l *loads) note(words string, began, now time.Time) {
	one, ok := l.queues.Load(words)
	if !ok {
		one, _ = l.queues.LoadOrStore(words, &load{slice: sliceOf(now)})
	}
	q := one.(*load)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.advance(now)
	q.spent[q.slice%int64(len(q.spent))] += max(now.Sub(began), time.Millisecond)
}

func sliceOf(at time.Time) int64 { return at.UnixNano() / int64(loadSlice) }

// advance begins the slices that have passed.
func (q *load) advance(now time.Time) {
	slice := sliceOf(now)
	for n := int64(0); q.slice < slice && n < int64(len(q.spent)); n++ {
		q.slice++
		q.spent[q.slice%int64(len(q.spent))] = 0
	}
	q.slice = max(q.slice, slice)
}

// mean returns the mean number of tasks over the last minute.
func (q *load) mean(now time.Time) float64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.advance(now)
	var sum time.Duration
	for _, d := range q.spent {
		sum += d
	}
	return float64(sum) / float64(loadSlices*loadSlice)
}

// DirectLoad implements broker.TaskQueues.
func (p *publisher) DirectLoad() map[broker.TaskQueueName]float64 {
	out := make(map[broker.TaskQueueName]float64)
	now := time.Now()
	p.direct.loads.queues.Range(func(words, q any) bool {
		tag, activity, _ := strings.Cut(words.(string), ".")
		if name, err := queueOf(tag, activity); err == nil {
			out[name] = q.(*load).mean(now)
		}
		return true
	})
	return out
}
