package natsbroker

import (
	"sync"
	"time"
)

// warnEvery bounds the warnings about what other processes send: a process that sends bad messages
// sends thousands in a second.
const warnEvery = time.Minute

// oddMessages are the warnings about what other processes send, each kind for itself.
type oddMessages struct {
	request, delivery   rarely // with a reply subject that is not their sender's
	results, result     rarely // directly delivered
	tasks, taskOfOthers rarely
}

// rarely logs the first event of a kind at once, and then one each [warnEvery]. The zero value is
// ready to use.
type rarely struct {
	mu   sync.Mutex
	next time.Time
	left int // events that were not logged since
}

// do calls log with the number of events that were not logged since the last call, or counts one
// more.
func (r *rarely) do(log func(dropped int)) {
	r.mu.Lock()
	now := time.Now()
	if now.Before(r.next) {
		r.left++
		r.mu.Unlock()
		return
	}
	dropped := r.left
	r.next, r.left = now.Add(warnEvery), 0
	r.mu.Unlock()
	log(dropped)
}
