package scheduler_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/services/worker/scheduler"
)

// world is a scheduler with the queues of some activities, and a clock that a script advances.
type world struct {
	s        *scheduler.Scheduler[string]
	now      time.Time
	names    []string
	requests map[string]*scheduler.Request // the last one of each queue
}

func newWorld(limits scheduler.Limits, queues string) *world {
	w := &world{s: scheduler.New[string](limits), now: time.Unix(0, 0), names: strings.Fields(queues),
		requests: make(map[string]*scheduler.Request)}
	for _, name := range w.names {
		tag, activity, _ := strings.Cut(name, "/")
		w.s.Add(tag, activity)
	}
	return w
}

func (w *world) id(name string) scheduler.QueueID {
	for i, n := range w.names {
		if strings.TrimPrefix(n, "/") == name || n == name {
			return scheduler.QueueID(i)
		}
	}
	panic("no queue " + name)
}

// run applies an event of a script, and describes the decisions or the answer.
func (w *world) run(line string) string {
	word := append(strings.Fields(line), "", "", "")
	q := word[1]
	number := func(s string) int { n, _ := strconv.Atoi(s); return n }
	duration := func(s string) time.Duration { d, _ := time.ParseDuration(s); return d }
	switch word[0] {
	case "ask":
		return w.describe(w.s.Asked(w.id(q), word[2] == "again", w.now))
	case "leave":
		w.s.Left(w.id(q))
	case "receive": // a task of the queue's last request
		return w.describe(w.s.Received(w.id(q), w.requests[q], word[2], w.now))
	case "direct":
		return w.describe(w.s.Received(w.id(q), nil, word[2], w.now))
	case "receive-all": // all tasks of the queue's last request, and then its end
		for range w.requests[q].N {
			w.s.Received(w.id(q), w.requests[q], "task of "+q, w.now)
		}
		return w.describe(w.s.Answered(w.requests[q], w.requests[q].N, w.now))
	case "answered":
		return w.describe(w.s.Answered(w.requests[q], number(word[2]), w.now))
	case "expired":
		return w.describe(w.s.Expired(w.requests[q], w.now))
	case "unused":
		return w.describe(w.s.Unused(w.requests[q], w.now))
	case "timeout":
		return w.describe(w.s.TimedOut(word[1]))
	case "freed":
		return w.describe(w.s.Freed(w.id(q), duration(word[2]), w.now))
	case "gathered":
		return w.describe(w.s.Gathered(w.now))
	case "closed":
		return w.describe(w.s.Closed())
	case "pass":
		w.now = w.now.Add(duration(word[1]))
	case "used":
		return fmt.Sprint(w.s.Used())
	case "room":
		return fmt.Sprint(w.s.HasRoom(w.id(q)))
	case "crowded":
		return fmt.Sprint(w.s.Crowded())
	default:
		return "no such event"
	}
	return ""
}

// describe writes decisions, and keeps a request.
func (w *world) describe(decisions []scheduler.Decision[string]) string {
	var all []string
	for _, d := range decisions {
		name := strings.TrimPrefix(w.names[d.Queue], "/")
		var s string
		switch d.Action {
		case scheduler.Fetch:
			w.requests[name] = d.Request
			s = fmt.Sprint("fetch ", d.Request.N)
			if d.Request.Reserved() {
				s += " reserved"
			}
		case scheduler.Wait:
			s = "wait"
			if d.After > 0 {
				s += " " + d.After.String()
			}
		case scheduler.Wake:
			s = "wake " + name
		case scheduler.Begin:
			s = "begin " + d.Task
		case scheduler.Hold:
			s = "hold"
		case scheduler.Refuse:
			s = "refuse " + d.Task
		case scheduler.Delay:
			s = "delay " + d.After.String()
		case scheduler.Gather:
			s = "gather"
		}
		all = append(all, s)
	}
	return strings.Join(all, ", ")
}

// play runs a script. Each line is "event -> decisions", or "n * event -> decisions" for an event
// that happens n times.
func (w *world) play(t *testing.T, script string) {
	t.Helper()
	for i, line := range strings.Split(strings.TrimSpace(script), "\n") {
		line, _, _ = strings.Cut(line, "//")
		event, want, _ := strings.Cut(line, "->")
		times := 1
		if n, rest, many := strings.Cut(event, "*"); many {
			times, _ = strconv.Atoi(strings.TrimSpace(n))
			event = rest
		}
		for range times {
			if got := w.run(event); got != strings.TrimSpace(want) {
				t.Fatalf("line %d: %s\ngot  %s\nwant %s", i+1, strings.TrimSpace(event), got, strings.TrimSpace(want))
			}
		}
	}
}

func TestScheduler(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		limits scheduler.Limits
		queues string
		script string
	}{
		{"a task begins when a slot is free", scheduler.Limits{Slots: 1}, "/a", `
			ask a           -> fetch 1
			receive a x     -> begin x
			used            -> 1
			answered a 1    ->
			freed a 1h      ->
			used            -> 0`},

		{"idle queues reserve no slot", scheduler.Limits{Slots: 1}, "/a /b /c", `
			ask a           -> fetch 1
			receive a x     -> begin x
			ask a again     -> wait
			ask b           -> wait
			ask c           -> wait
			freed a 1m      -> wake a
			ask a again     -> fetch 1, wake b
			ask b again     -> fetch 1, wake c
			ask c again     -> fetch 1`},

		{"idle queues share what they may fetch", scheduler.Limits{Slots: 10}, "/a /b", `
			ask a           -> fetch 5
			ask b           -> fetch 5`},

		{"a busy queue has slots reserved until the reservation expires", scheduler.Limits{Slots: 10}, "/a /b", `
			ask a           -> fetch 5
			answered a 5    ->
			ask a           -> fetch 10 reserved
			ask b           -> wait
			expired a       -> wake b
			ask b again     -> fetch 5
			answered a 0    ->
			ask a           -> fetch 5              // it is not busy any more`},

		{"a request that is answered releases what it did not use", scheduler.Limits{Slots: 4}, "/a /b", `
			ask a           -> fetch 2
			answered a 2    ->
			ask a           -> fetch 4 reserved
			receive a x     -> begin x
			ask b           -> wait
			answered a 1    -> wake b
			ask b again     -> fetch 1`},

		{"a duplicate releases the slot that was reserved for it", scheduler.Limits{Slots: 1}, "/a /b", `
			ask a           -> fetch 1
			unused a        ->                      // nothing is reserved for an idle queue
			answered a 1    ->
			ask a           -> fetch 1 reserved
			ask b           -> wait
			unused a        -> wake b
			unused a        ->`},

		{"a busy queue waits for several slots", scheduler.Limits{Slots: 8}, "/a", `
			ask a           -> fetch 8
			receive-all a   ->
			ask a           -> wait
			freed a 1h      -> gather
			freed a 1h      -> wake a               // a quarter of the slots is worth a request
			ask a again     -> fetch 2 reserved
			receive-all a   ->
			gathered        ->
			ask a           -> wait
			freed a 1h      -> gather
			gathered        -> wake a
			ask a again     -> fetch 1 reserved`},

		{"a queue that asks with too few free slots waits for more", scheduler.Limits{Slots: 8}, "/a", `
			ask a           -> fetch 8
			receive-all a   ->
			freed a 1h      ->
			ask a           -> wait, gather
			gathered        -> wake a`},

		{"busy queues share the slots", scheduler.Limits{Slots: 8}, "/a /b", `
			ask a           -> fetch 4
			receive-all a   ->
			ask b           -> fetch 2
			answered b 2    ->
			ask b           -> fetch 4 reserved
			ask a           -> wait
			expired b       -> wake a
			ask a again     -> fetch 4 reserved`},

		{"a task without a slot waits, or times out", scheduler.Limits{Slots: 1}, "/a", `
			direct a x      -> begin x
			direct a y      -> hold
			direct a z      -> hold
			timeout y       -> refuse y
			timeout y       ->
			freed a 1m      -> begin z
			timeout z       ->
			direct a u      -> hold
			direct a v      -> hold
			closed          -> refuse u, refuse v
			direct a w      -> refuse w
			freed a 1m      ->
			direct a last   -> begin last
			used            -> 1`},

		{"the tasks that wait begin before queues are woken", scheduler.Limits{Slots: 2}, "/a /b", `
			2 * direct a x  -> begin x
			direct a y      -> hold
			ask b           -> wait
			freed a 1m      -> begin y
			freed a 1m      -> wake b`},

		{"a queue that has left is not woken", scheduler.Limits{Slots: 1}, "/a /b", `
			direct a x      -> begin x
			ask a           -> wait
			ask b           -> wait
			leave a         ->
			freed a 1m      -> wake b`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			newWorld(tt.limits, tt.queues).play(t, tt.script)
		})
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		limits scheduler.Limits
		queues string
		script string
	}{
		{"a tag and an activity have slots of their own", scheduler.Limits{Slots: 5,
			SlotsPerTag: map[string]int{"gpu": 4}, SlotsPerActivity: map[string]int{"a": 3}}, "gpu/a gpu/b /a /b", `
			3 * direct gpu/a x -> begin x
			direct gpu/a y     -> hold
			direct a z         -> hold
			direct gpu/b x     -> begin x
			direct gpu/b y     -> hold
			direct b x         -> begin x
			direct b y         -> hold
			freed gpu/a 1s     -> begin y           // of gpu/a: the oldest that fits
			freed gpu/b 1s     -> begin y`},

		{"a rate limits what begins", scheduler.Limits{Slots: 10, RatePerActivity: map[string]float64{"a": 20}}, "/a /b", `
			ask a           -> fetch 1
			receive a x     -> begin x
			receive a y     -> begin y
			receive a z     -> delay 50.001ms
			answered a 1    ->
			ask a           -> wait 50.001ms
			ask b           -> fetch 4
			pass 51ms       ->
			ask a again     -> fetch 1 reserved
			receive a z     -> begin z`},

		{"a rate that is used up releases the slot that was reserved", scheduler.Limits{Slots: 1,
			RatePerActivity: map[string]float64{"a": 1}}, "/a /b", `
			ask a           -> fetch 1
			answered a 1    ->
			ask a           -> fetch 1 reserved
			ask b           -> wait
			direct a x      -> hold
			receive a y     -> delay 1.000001s
			answered a 1    -> begin x`},

		{"a rate far off", scheduler.Limits{Slots: 1, RatePerActivity: map[string]float64{"a": 0.001}}, "/a", `
			direct a x      -> begin x
			direct a y      -> delay 16m40.000001s
			ask a           -> wait 16m40.000001s`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			newWorld(tt.limits, tt.queues).play(t, tt.script)
		})
	}
}

func TestPrefetch(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		limits scheduler.Limits
		queues string
		script string
	}{
		{"short activities are fetched ahead", scheduler.Limits{Slots: 2}, "/a", `
			ask a           -> fetch 2
			receive a x     -> begin x
			receive a x     -> begin x
			answered a 2    ->
			ask a           -> wait                 // the duration is not known
			freed a 1ms     -> wake a
			ask a again     -> fetch 1 reserved
			receive-all a   ->
			ask a           -> fetch 1              // ahead of a free slot
			receive a y     -> hold
			answered a 1    ->
			ask a           -> wait                 // one task waits
			freed a 1ms     -> begin y, wake a
			ask a again     -> fetch 1
			receive a z     -> hold
			answered a 1    ->
			timeout z       -> refuse z
			ask a           -> wait                 // it was not short after all
			freed a 1ms     -> wake a
			ask a again     -> fetch 1 reserved
			receive a x     -> begin x`},

		{"nothing is fetched ahead while another queue waits", scheduler.Limits{Slots: 1}, "/a /b", `
			ask a           -> fetch 1
			receive-all a   ->
			ask b           -> wait
			freed a 1ms     -> wake b
			ask a           -> fetch 1 reserved
			receive-all a   ->
			ask a           -> wait
			freed a 1ms     -> wake b
			ask b again     -> fetch 1, wake a
			ask a again     -> fetch 1 reserved
			receive-all a   ->
			ask a           -> fetch 1`},

		{"an eighth of the slots is fetched ahead", scheduler.Limits{Slots: 100}, "/a", `
			ask a           -> fetch 100
			receive-all a   ->
			freed a 1ms     ->
			direct a x      -> begin x
			ask a           -> fetch 12
			receive-all a   ->
			5 * freed a 1ms -> begin task of a
			ask a           -> wait                 // not for each of them alone
			freed a 1ms     -> begin task of a, wake a
			ask a again     -> fetch 6              // for half of them
			receive-all a   ->
			8 * freed a 1s  -> begin task of a
			ask a           -> wait                 // it takes long now`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			newWorld(tt.limits, tt.queues).play(t, tt.script)
		})
	}
}

func TestDirectDeliveryNeedsRoom(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		limits scheduler.Limits
		queues string
		script string
	}{
		{"a free slot", scheduler.Limits{Slots: 1}, "/a /b", `
			room a          -> true
			direct a x      -> begin x
			room a          -> false                // the duration is not known
			freed a 1h      ->
			room a          -> true
			direct a x      -> begin x
			room a          -> false                // it takes long
			room b          -> false`},

		{"a slot is free soon", scheduler.Limits{Slots: 1}, "/a /b", `
			direct a x      -> begin x
			freed a 10ms    ->
			direct a x      -> begin x
			room a          -> true
			direct a y      -> hold
			room a          -> true                 // 20 ms at most
			direct a z      -> hold
			room a          -> false                // 30 ms
			timeout z       -> refuse z
			room a          -> false                // it was not soon`},

		{"another queue waits for slots", scheduler.Limits{Slots: 1}, "/a /b", `
			direct a x      -> begin x
			freed a 10ms    ->
			direct a x      -> begin x
			ask a           -> wait
			room a          -> true
			ask b           -> wait
			room a          -> false`},

		{"tasks wait in the broker", scheduler.Limits{Slots: 4}, "/a", `
			ask a           -> fetch 4
			answered a 4    ->
			room a          -> false
			ask a           -> fetch 4 reserved
			answered a 3    ->
			room a          -> true`},

		{"a rate", scheduler.Limits{Slots: 4, RatePerActivity: map[string]float64{"a": 1000}}, "/a", `
			room a          -> false`},

		{"the end", scheduler.Limits{Slots: 4}, "/a", `
			closed          ->
			room a          -> false`},

		{"a crowd", scheduler.Limits{Slots: 2}, "/a", `
			2 * direct a x  -> begin x
			15 * direct a y -> hold
			crowded         -> false
			direct a y      -> hold
			crowded         -> true`},

		{"too many tasks wait for slots", scheduler.Limits{Slots: 100_000}, "/a /b", `
			100000 * direct a x -> begin x
			freed a 1us     ->
			direct a x      -> begin x
			999 * direct a y -> hold
			room a          -> true
			direct a y      -> hold
			room a          -> false`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			newWorld(tt.limits, tt.queues).play(t, tt.script)
		})
	}
}

// TestEventsAllocateNothing checks the way of a task that gets a slot at once.
func TestEventsAllocateNothing(t *testing.T) {
	s := scheduler.New[*int](scheduler.Limits{Slots: 10})
	q, now, task := s.Add("", "a"), time.Unix(0, 0), new(int)
	if n := testing.AllocsPerRun(100, func() {
		if d := s.Received(q, nil, task, now); len(d) != 1 || d[0].Action != scheduler.Begin {
			t.Error(d)
		}
		if d := s.Freed(q, time.Hour, now); len(d) != 0 {
			t.Error(d)
		}
	}); n > 0 {
		t.Errorf("%v allocations for a task", n)
	}
}
