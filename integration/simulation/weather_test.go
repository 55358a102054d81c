package simulation

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
)

// weather has the probabilities of faults in a world: for each side effect of a process, and for
// all processes at some moments. Each seed has only some faults, so that rare ones get a chance
// beside others that would hide them.
type weather struct {
	lost, unanswered, deaf, late float64 // requests, answers, unconfirmed messages; and those that take seconds
	contended, ambiguous         float64 // commits
	crash                        float64 // of a process, before or after anything that it does
	twice                        float64 // clients send a message twice
	dedupes                      time.Duration
	brokerAhead, storeAhead      time.Duration
	orchestratorsAhead           [2]time.Duration
	// remembers is how many messages of former executions an execution knows.
	remembers int
	// startsOrSends has clients send mailbox messages with starts that restart ended instances.
	startsOrSends bool
	disasters     []disaster
	lasts         time.Duration // then it is calm
	posts         bool          // the broker keeps what it has, so that instances can rely on what they send each other

	crowd      int           // so many short instances start at once, and
	slowCommit time.Duration // commits take this long, so that many turns wait for one
	flood      int           // so many messages come that no instance takes
	odd        bool          // clients set headers that are not theirs to set
	deletes    bool          // an operator deletes instances whose ids are used again
	reborn     int           // so many ids are used again while messages for the former instance are in flight
	postbox    int           // so many instances get mailbox messages in bursts while they continue as new
	patients   int           // so many instances wait with deadlines
	intruder   time.Duration // an orchestrator with another database begins then; 0: none does
}

// A disaster happens at a moment.
type disaster struct {
	at   time.Duration
	what string
	who  int           // the process it happens to
	by   time.Duration // how much of it
}

// disasters are the kinds of disasters that any world may have. In an outage, the orchestrators die
// and stay dead for some time, while workers complete what they have; then the broker forgets
// everything, and the orchestrators come back. Sometimes one of the two workers dies, too, and does
// not come back, so that the other one gets every task again that it has completed.
var disasters = strings.Fields(
	"kill kill kill cut cutoff stop stop restart powerloss powerloss forget disconnect partitions brokerclock")

// forecast draws the weather of a seed.
func forecast(r *rand.Rand) weather {
	w := weather{lasts: 15*time.Second + time.Duration(r.Int64N(int64(45*time.Second))), dedupes: 10 * time.Second}
	some := func(p *float64, most float64) {
		if f := r.Float64(); r.IntN(5) < 2 {
			*p = f * most
		}
	}
	some(&w.lost, 0.1)
	some(&w.unanswered, 0.1)
	some(&w.deaf, 0.2)
	some(&w.late, 0.02)
	some(&w.contended, 0.2)
	some(&w.ambiguous, 0.2)
	some(&w.crash, 0.005)
	some(&w.twice, 0.5)
	if r.IntN(4) == 0 {
		w.dedupes = -1
	}
	ahead := func() time.Duration { return time.Duration(r.Int64N(int64(4*time.Second))) - 2*time.Second }
	if r.IntN(3) == 0 {
		w.brokerAhead, w.orchestratorsAhead[0], w.orchestratorsAhead[1], w.storeAhead = ahead(), ahead(),
			ahead(), ahead()
	}
	w.posts = r.IntN(2) == 0
	for range r.IntN(6) {
		d := disaster{at: time.Duration(r.Int64N(int64(w.lasts))), what: disasters[r.IntN(len(disasters))],
			who: r.IntN(4)}
		if w.posts && (d.what == "powerloss" || d.what == "forget") {
			continue
		}
		switch d.what {
		case "cut", "cutoff":
			d.by = duration(r, time.Second, time.Minute)
		case "stop":
			d.by = 15*time.Second + time.Duration(r.Int64N(int64(45*time.Second)))
		case "powerloss":
			d.by = duration(r, 10*time.Millisecond, 8*time.Second)
		case "partitions":
			d.by = time.Duration(1 + r.IntN(7))
		case "brokerclock":
			d.by = ahead()
		}
		w.disasters = append(w.disasters, d)
	}
	more := rand.New(rand.NewPCG(uint64(w.lasts), 1)) // so that everything else stays as it is for a seed
	w.remembers = 1 + more.IntN(4)
	w.startsOrSends = !slices.ContainsFunc(w.disasters, func(d disaster) bool {
		return slices.Contains(losing, d.what)
	}) && more.IntN(2) == 0
	if !w.posts && !w.startsOrSends && more.IntN(3) == 0 {
		at := time.Duration(more.Int64N(int64(w.lasts)))
		w.disasters = append(w.disasters,
			disaster{at, "outage", 2 + more.IntN(3), duration(more, 2*time.Second, 20*time.Second)})
	}
	return w
}

// losing are the disasters after which clients send everything again, or their messages may come in
// another order.
var losing = strings.Fields("partitions powerloss forget outage")

// company draws the other events of a world. It has a source of its own, so that the rest of a seed
// stays the same.
func (w *weather) company(r *rand.Rand) {
	one := func(in int) bool { return r.IntN(in) == 0 }
	if one(7) {
		w.crowd, w.slowCommit = 110+r.IntN(60), time.Duration(20+r.IntN(40))*time.Millisecond
		w.contended, w.ambiguous = w.contended/5, w.ambiguous/5 // after a failure one commit at a time is made
		w.lost, w.unanswered = w.lost/5, w.unanswered/5
	}
	if one(8) {
		w.flood = 40 + r.IntN(80)
	}
	w.odd = one(4)
	if one(3) {
		w.reborn = 1 + r.IntN(3)
		w.deletes = one(2)
	}
	if one(4) {
		w.postbox = 1 + r.IntN(2)
	}
	for range r.IntN(3) { // moments in which a process does not get the processor: no reason to execute anything twice
		w.disasters = append(w.disasters, disaster{time.Duration(r.Int64N(int64(w.lasts))), "hiccup", r.IntN(4),
			duration(r, 50*time.Millisecond, 900*time.Millisecond)})
	}
	if one(3) { // no reason to blame the code
		w.disasters = append(w.disasters, disaster{time.Duration(r.Int64N(int64(w.lasts))), "stop in code", r.IntN(2),
			15*time.Second + time.Duration(r.Int64N(int64(75*time.Second)))})
	}
}

// misconfigure draws when the broker refuses some messages because of a setting, which is no reason
// to fail anything.
func (w *weather) misconfigure(r *rand.Rand) {
	if r.IntN(6) == 0 {
		w.disasters = append(w.disasters, disaster{time.Duration(r.Int64N(int64(w.lasts))), "deny",
			r.IntN(len(deniable)), duration(r, time.Second, 30*time.Second)})
	}
}

// deniable are the messages of services that it refuses then.
var deniable = []events.Verb{events.VerbTask, events.VerbDone, events.VerbFail, events.VerbTimer, events.VerbChild}

func (w weather) String() string {
	var b strings.Builder
	for _, p := range []struct {
		name string
		p    float64
	}{{"lost", w.lost}, {"unanswered", w.unanswered}, {"deaf", w.deaf}, {"late", w.late}, {"contended", w.contended},
		{"ambiguous", w.ambiguous}, {"crash", w.crash}, {"twice", w.twice}} {
		if p.p > 0 {
			fmt.Fprintf(&b, "%s %.1f%%, ", p.name, 100*p.p)
		}
	}
	if w.dedupes < 0 {
		b.WriteString("the broker dedupes nothing, ")
	}
	if w.brokerAhead != 0 {
		fmt.Fprintf(&b, "clocks ahead: broker %v, orchestrators %v, store %v, ", w.brokerAhead,
			w.orchestratorsAhead, w.storeAhead)
	}
	for _, x := range []struct {
		name string
		n    int
	}{{"crowd", w.crowd}, {"flood", w.flood}, {"reborn", w.reborn}, {"postbox", w.postbox},
		{"patients", w.patients}} {
		if x.n > 0 {
			fmt.Fprintf(&b, "%s %d, ", x.name, x.n)
		}
	}
	if w.odd {
		b.WriteString("odd headers, ")
	}
	if w.intruder > 0 {
		fmt.Fprintf(&b, "%v: an intruder, ", w.intruder.Round(time.Millisecond))
	}
	for _, d := range w.disasters {
		fmt.Fprintf(&b, "%v: %s of %d by %d, ", d.at.Round(time.Millisecond), d.what, d.who, d.by)
	}
	return strings.TrimSuffix(b.String(), ", ")
}

// fate is the outcome of one side effect of a process.
type fate struct {
	after                                time.Duration // it takes this long
	chance                               float64       // for whatever else
	lost, unanswered                     bool
	crashBefore, crashAfter              bool
	contended, ambiguous, twice, unheard bool
}

// fateOf draws a fate from the seed, the process, the effect, and its count.
func (w weather) fateOf(seed uint64, who, what string, nth int, calm bool) fate {
	h := fnv.New64a()
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:], seed)
	binary.LittleEndian.PutUint64(b[8:], uint64(nth))
	h.Write(b[:])
	h.Write([]byte(who))
	h.Write([]byte{0})
	h.Write([]byte(what))
	r := rand.New(rand.NewPCG(seed, h.Sum64()))
	f := fate{chance: r.Float64(), after: 20*time.Microsecond + time.Duration(r.Int64N(int64(time.Millisecond)))}
	is := func(p float64) bool { return r.Float64() < p && !calm }
	if is(w.late) {
		f.after = duration(r, 10*time.Millisecond, 15*time.Second)
	}
	f.lost, f.unanswered, f.unheard = is(w.lost), is(w.unanswered), is(w.deaf)
	f.contended, f.ambiguous, f.twice = is(w.contended), is(w.ambiguous), is(w.twice)
	if is(w.crash) && !strings.HasPrefix(who, "client") {
		f.crashBefore = r.IntN(2) == 0
		f.crashAfter = !f.crashBefore
		f.unanswered = f.unanswered || f.crashAfter && r.IntN(2) == 0
	}
	return f
}
