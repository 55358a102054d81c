package jobserver_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/jobs"
)

// FuzzOperations reads bytes as operations, and as time that passes, and compares every answer with
// a small model of the queue: no two exclusive locks, no job at two places, none lost, and popped
// jobs are those in front.
func FuzzOperations(f *testing.F) {
	for _, seed := range []string{
		"\x00\x05\x02\x12\x04\x00\x01\x02", // push, pop with a lock, acknowledge, pop
		// a lock that expires before it is acknowledged
		"\x00\x0f\x02\x03\x07\x28\x04\x00\x01\x01",
		"\x00\x0f\x03\x01\x03\x01\x01\x01\x04\x00\x04\x01\x01\x03", // concurrent locks
		// a concurrent lock that has expired, then an exclusive one
		"\x00\x0f\x03\x01\x07\x28\x02\x01\x07\x28\x04\x00\x04\x01",
		"\x0a\x01\x00\x0f\x02\x03\x05\x00\x08\x00\x01\x03\x02\x00\x09\x00", // jobs that die, and are requeued
		"\x00\x1f\x0b\x00\x07\x05\x01\x03\x0b\x00",                         // delayed jobs
		"\x00\x03\x02\x02\x06\x80\x07\x1e\x02\x00\x05\x90\x07\x0a\x01\x01", // more time, and a return with a delay
		// a lock that has expired, and a push before it is acknowledged
		"\x00\x0f\x02\x00\x07\x28\x00\x00\x04\x00\x04\x00",
		// a lock that has expired, and a look before it is returned
		"\x00\x0f\x02\x00\x07\x28\x0b\x00\x05\x00\x01\x00\x05\x00",
		"\x00\x03\x03\x02\x0c\x00\x04\x00\x00\x01\x01\x00", // a queue that is removed under a lock
	} {
		f.Add([]byte(seed))
	}
	server := newFuzzed(f)
	f.Fuzz(func(t *testing.T, program []byte) {
		server.clear(t)
		defer server.clear(t)
		m := &model{t: t, server: server, now: server.clock.now()}
		m.configure(0)
		for n := 0; n+1 < min(len(program), 120) && !t.Failed(); n += 2 {
			m.do(int(program[n])%len(steps), int(program[n+1]))
		}
		m.look()
		if t.Failed() {
			t.Log(strings.Join(m.log, "\n"))
		}
	})
}

// place is the place of a job in the model.
type place string

const (
	ready   place = "ready"
	delayed place = "delayed"
	locked  place = "locked"
	dead    place = "dead"
	gone    place = "gone"
)

// thing is a job of the model.
type thing struct {
	number, priority, attempts int
	place                      place
	due                        time.Time
	lease                      *lease
	// moved says that it is not where it was pushed, so that the model does not know its position
	// among others of its priority.
	moved bool
}

// lease is a lock of the model. It ends at its time, and is settled when the queue has noticed.
type lease struct {
	id        string
	exclusive bool
	until     time.Time
	settled   time.Time // when it was found to have expired
	ended     bool      // acknowledged or returned
}

type model struct {
	t           *testing.T
	server      *fuzzed
	now         time.Time
	maxAttempts int
	lapsed      bool // an exclusive lock has expired, noticed by another operation than a pop
	things      []*thing
	leases      []*lease
	log         []string
}

// steps are the meanings of a byte, with another one as a parameter.
var steps = []func(*model, int){
	(*model).push,
	func(m *model, how int) { m.pop(how, false, "") },
	func(m *model, how int) { m.pop(how, true, "exclusive") },
	func(m *model, how int) { m.pop(how, true, "concurrent") },
	func(m *model, how int) { m.end("acknowledge", how) },
	func(m *model, how int) { m.end("nack", how) },
	func(m *model, how int) { m.end("extend", how) },
	(*model).wait,
	(*model).requeue,
	func(m *model, _ int) { m.removeDead() },
	(*model).configure,
	func(m *model, _ int) { m.look() },
	(*model).remove,
	func(m *model, how int) { m.pop(how, false, "concurrent") },
}

func (m *model) do(step, how int) { steps[step](m, how) }

// ask sends a request, which must be answered with a status.
func (m *model) ask(status int, method, target, body string) answered {
	m.t.Helper()
	a := m.server.send(m.t, method, "/queue/q"+target, body)
	m.log = append(m.log, fmt.Sprintf("%s %s %s %s: %d %s", m.now.Format("15:04:05.000"), method, target, body,
		a.status, bytes.TrimSpace(a.body)))
	if a.status != status {
		m.t.Errorf("%s %s %s: %d %s; the model expects %d", method, target, body, a.status, a.body, status)
	}
	return a
}

// expect compares a number of an answer.
func (m *model) expect(a answered, name string, want int) {
	m.t.Helper()
	if a.number(name) != want {
		m.t.Errorf("%s is %d; the model expects %d", name, a.number(name), want)
	}
}

func (m *model) push(how int) {
	m.settle()
	priority, count, delay := how%3, 1+how/4%4, 0
	if how&0x10 != 0 {
		delay = 5 + how>>5
	}
	var items []string
	for range count {
		x := &thing{number: len(m.things), priority: priority, place: ready}
		if delay > 0 {
			x.place, x.due, x.moved = delayed, m.now.Add(time.Duration(delay)*time.Second), true
		}
		m.things = append(m.things, x)
		items = append(items,
			fmt.Sprintf(`{"item": %d, "priority": %d, "delay_seconds": %d}`, x.number, priority, delay))
	}
	m.expect(m.ask(http.StatusOK, "POST", "/push", `{"items": [`+strings.Join(items, ", ")+`]}`), "items_pushed", count)
}

func (m *model) wait(how int) {
	m.server.clock.move(time.Duration(how) * 500 * time.Millisecond)
	m.now = m.server.clock.now()
}

// active are the locks that the queue has, including those that have expired unnoticed.
func (m *model) active() (list []*lease) {
	for _, l := range m.leases {
		if !l.ended && l.settled.IsZero() {
			list = append(list, l)
		}
	}
	return list
}

func (m *model) exclusive() *lease {
	if list := m.active(); len(list) > 0 && list[0].exclusive {
		return list[0]
	}
	return nil
}

// of are the jobs of a lock, or at a place.
func (m *model) of(is func(*thing) bool) (list []*thing) {
	for _, x := range m.things {
		if is(x) {
			list = append(list, x)
		}
	}
	return list
}

func (m *model) at(p place) []*thing { return m.of(func(x *thing) bool { return x.place == p }) }

// back makes the jobs of a lock ready again, and counts those that are dead now.
func (m *model) back(l *lease, delay time.Duration) (back, died int) {
	for _, x := range m.of(func(x *thing) bool { return x.lease == l }) {
		x.lease, x.place = nil, ready
		switch {
		case m.maxAttempts > 0 && x.attempts >= m.maxAttempts:
			x.place = dead
			died++
		case delay > 0:
			x.place, x.due = delayed, m.now.Add(delay)
			back++
		default:
			back++
		}
	}
	return back, died
}

func (m *model) expire(l *lease) {
	m.back(l, 0)
	l.settled, m.lapsed = m.now, m.lapsed || l.exclusive
}

// settle ends expired leases, and makes due jobs ready.
func (m *model) settle() {
	for _, l := range m.active() {
		if !m.now.Before(l.until) {
			m.expire(l)
		}
	}
	for _, x := range m.at(delayed) {
		if !m.now.Before(x.due) {
			x.place = ready
		}
	}
}

func (m *model) pop(how int, ack bool, mode string) {
	count, ttl := 1+how%4, 1+how/4
	target := fmt.Sprintf("/pop?count=%d", count)
	if ack {
		target += fmt.Sprintf("&require_ack=true&ttl_seconds=%d", ttl)
	}
	if mode != "" {
		target += "&mode=" + mode
	}
	m.settle()
	m.lapsed = false
	if m.exclusive() != nil || mode != "concurrent" && len(m.active()) > 0 {
		until := m.active()[0].until
		for _, l := range m.active() {
			until = slices.MaxFunc([]time.Time{until, l.until}, time.Time.Compare)
		}
		if a := m.ask(http.StatusLocked, "POST", target,
			""); a.float("lock_expires_at") < float64(until.UnixMilli())/1000 {
			m.t.Errorf("locked until %v; the model expects %v at least", a.members["lock_expires_at"], until)
		}
		return
	}
	a := m.ask(http.StatusOK, "POST", target, "")
	there := m.at(ready)
	count = min(count, len(there))
	m.expect(a, "count", count)
	m.taken(a, there)
	if !ack {
		for _, x := range m.popped(a) {
			x.place = gone
		}
		return
	}
	if (a.text("lock_id") != "") != (count > 0) || a.members["locked"] != (count > 0) {
		m.t.Errorf("a pop of %d items: %s", count, a.body)
	}
	if count == 0 {
		return
	}
	l := &lease{id: a.text("lock_id"), exclusive: mode == "exclusive",
		until: m.now.Add(jobs.TTL(time.Duration(ttl) * time.Second))}
	if at := a.float("lock_expires_at"); at != float64(l.until.UnixMilli())/1000 {
		m.t.Errorf("the lock ends at %v; the model expects %v", at, l.until)
	}
	m.leases = append(m.leases, l)
	for _, x := range m.popped(a) {
		x.place, x.lease = locked, l
		x.attempts++
	}
}

// popped are the jobs of an answer.
func (m *model) popped(a answered) (list []*thing) {
	var out struct{ Items []int }
	if err := json.Unmarshal(a.body, &out); err != nil {
		m.t.Fatal(err)
	}
	for _, n := range out.Items {
		list = append(list, m.things[n])
	}
	return list
}

// taken checks that the popped jobs were ready, and in front of the others.
func (m *model) taken(a answered, there []*thing) {
	got := m.popped(a)
	rest := slices.Clone(there)
	for _, x := range got {
		n := slices.Index(rest, x)
		if n < 0 {
			m.t.Errorf("item %d was popped, which is %s", x.number, x.place)
			return
		}
		rest = slices.Delete(rest, n, n+1)
	}
	before := func(x, y *thing) int {
		if x.priority != y.priority || x.moved || y.moved {
			return cmp.Compare(x.priority, y.priority)
		}
		return cmp.Compare(x.number, y.number)
	}
	for n, x := range got {
		for _, y := range append(slices.Clone(got[n+1:]), rest...) {
			if before(x, y) > 0 {
				m.t.Errorf("item %d was popped before item %d", x.number, y.number)
			}
		}
	}
}

// end acknowledges, returns or extends a lock: one of those that there are or were, or another one.
func (m *model) end(operation string, how int) {
	id, body := "none-of-these", ""
	if n := how % 16; n < len(m.leases) {
		l := m.leases[len(m.leases)-1-n]
		if m.now.Sub(l.until) >= 10*time.Minute {
			return // the server decides whether it is forgotten already
		}
		id = l.id
	}
	delay, ttl := time.Duration(how>>6)*time.Second, 1+how
	switch operation {
	case "nack":
		body = fmt.Sprintf(`, "delay_seconds": %v`, delay.Seconds())
	case "extend":
		body = fmt.Sprintf(`, "ttl_seconds": %d`, ttl)
	}
	status, l := m.expected(id)
	a := m.ask(status, "POST", "/"+operation, fmt.Sprintf(`{"lock_id": %q%s}`, id, body))
	if status != http.StatusOK {
		return
	}
	switch operation {
	case "extend":
		l.until = m.now.Add(jobs.TTL(time.Duration(ttl) * time.Second))
		if at := a.float("lock_expires_at"); at != float64(l.until.UnixMilli())/1000 {
			m.t.Errorf("the lock ends at %v; the model expects %v", at, l.until)
		}
	case "nack":
		back, died := m.back(l, delay)
		l.ended = true
		m.expect(a, "items_returned", back)
		m.expect(a, "items_dead", died)
	default:
		all := m.of(func(x *thing) bool { return x.lease == l })
		for _, x := range all {
			x.place, x.lease = gone, nil
		}
		l.ended = true
		m.expect(a, "items_acknowledged", len(all))
	}
}

// expected is the status for a lock's id in the document: no lock 404, an expired one 410, another
// id 400.
func (m *model) expected(id string) (int, *lease) {
	n := slices.IndexFunc(m.leases, func(l *lease) bool { return l.id == id })
	if l := m.exclusive(); l != nil {
		switch {
		case !m.now.Before(l.until):
			m.expire(l)
			m.lapsed = false
			return http.StatusGone, nil
		case l.id != id:
			return http.StatusBadRequest, nil
		}
		return http.StatusOK, l
	}
	if m.lapsed {
		m.lapsed = false
		return http.StatusGone, nil
	}
	none := http.StatusBadRequest
	if len(m.active()) == 0 {
		none = http.StatusNotFound
	}
	if n < 0 {
		return none, nil
	}
	l := m.leases[n]
	switch {
	case l.ended || l.exclusive:
		return none, nil
	case !l.settled.IsZero():
		return http.StatusGone, nil
	case !m.now.Before(l.until):
		m.expire(l)
		return http.StatusGone, nil
	}
	return http.StatusOK, l
}

func (m *model) requeue(how int) {
	m.settle()
	limit := 1 + how%3
	n := min(limit, len(m.at(dead)))
	m.expect(m.ask(http.StatusOK, "POST", "/dead/requeue", fmt.Sprintf(`{"limit": %d}`, limit)), "items_requeued", n)
	if n == 0 {
		return
	}
	// The server decides which ones died first: those that are not among the dead any more.
	var out struct {
		Items []struct{ Item int }
	}
	if err := json.Unmarshal(m.ask(http.StatusOK, "GET", "/dead?limit=1000", "").body, &out); err != nil {
		m.t.Fatal(err)
	}
	still := make(map[int]bool)
	for _, i := range out.Items {
		still[i.Item] = true
	}
	for _, x := range m.at(dead) {
		if !still[x.number] {
			x.place, x.attempts, x.moved = ready, 0, true
			n--
		}
	}
	if n != 0 {
		m.t.Errorf("%d more items were to be requeued", n)
	}
}

func (m *model) removeDead() {
	all := m.at(dead)
	m.expect(m.ask(http.StatusOK, "DELETE", "/dead", ""), "items_removed", len(all))
	for _, x := range all {
		x.place = gone
	}
}

func (m *model) configure(how int) {
	m.maxAttempts = how % 4
	m.ask(http.StatusOK, "PUT", "", fmt.Sprintf(`{"max_attempts": %d}`, m.maxAttempts))
}

// remove removes the queue, and makes it anew.
func (m *model) remove(int) {
	all := m.of(func(x *thing) bool { return x.place != gone })
	m.expect(m.ask(http.StatusOK, "DELETE", "", ""), "items_removed", len(all))
	for _, x := range all {
		x.place, x.lease = gone, nil
	}
	for _, l := range m.leases {
		l.ended = true
	}
	m.lapsed = false
	m.ask(http.StatusNotFound, "GET", "", "")
	m.configure(m.maxAttempts)
}

// look compares the counts, and each of the priorities.
func (m *model) look() {
	m.settle()
	a := m.ask(http.StatusOK, "GET", "", "")
	m.expect(a, "depth", len(m.at(ready)))
	m.expect(a, "locked_items", len(m.at(locked)))
	m.expect(a, "delayed_items", len(m.at(delayed)))
	m.expect(a, "dead_items", len(m.at(dead)))
	m.expect(a, "locks", len(m.active()))
	priorities, _ := a.members["priorities"].(map[string]any)
	for p := range 3 {
		n := len(m.of(func(x *thing) bool { return x.place == ready && x.priority == p }))
		if is, _ := priorities[strconv.Itoa(p)].(json.Number); n != 0 && is.String() != strconv.Itoa(n) ||
			n == 0 && is != "" {
			m.t.Errorf("%v items of priority %d; the model expects %d", is, p, n)
		}
	}
}
