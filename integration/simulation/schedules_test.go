package simulation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // the machine may have no time zones

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/broker/brokersim"
	"github.com/rondo-run/rondo/internal/check"
	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/internal/schedule"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
)

// A plan is a schedule that a client puts, with its requests and with all that happens to its row.
// Its runs are scripts.
type plan struct {
	id       string
	beat     beat
	spec     schedule.Spec
	requests []request

	// The rest is guarded by the mutex of the world.
	done     bool           // the client has all answers
	put      upheaval       // the time of its first request
	answered map[string]int // requests, by their kind
	unknown  map[string]int // requests whose outcome the client does not know
	rows     []revision     // all states of its row, in their order
	known    map[string]bool
}

// A request is sent until it is answered.
type request struct {
	at           time.Duration
	what, method string
	question     query.Question
	from, to     time.Time // of a backfill
}

// A beat is the pattern of a plan: each few seconds, or some seconds of each minute.
type beat struct {
	every   int
	seconds []int
	berlin  bool // by the clocks of Berlin, which are an hour ahead of UTC in winter
	hour    bool // the hour is fixed: that in which a world begins
}

// A revision is one state of a row.
type revision struct {
	at    time.Time
	by    string
	ahead time.Duration // by which the clock of that process is ahead
	row   history.Schedule
	// expected is the version before; 0: there was none.
	expected int64
	before   *schedule.State // nil for the first
	is       *schedule.State
	starts   []events.Message
	ends     map[string]events.How
}

// lifetime is the time of a run, as commits show it.
type lifetime struct {
	born, died     int // numbers of commits; 0: not yet
	bornAt, diedAt time.Time
}

const planned = "plan-"

func isPlanned(instance string) bool { return strings.HasPrefix(instance, planned) }

// makePlans makes the schedules of a world. About half of the worlds have some, and some of those a
// time more for which no orchestrator is there.
func makePlans(r *rand.Rand, begun time.Time, sky *weather) (plans []*plan) {
	if r.IntN(2) == 1 {
		return nil
	}
	if r.IntN(3) == 0 {
		away := disaster{duration(r, time.Second, sky.lasts), "away", 0,
			10*time.Second + duration(r, 0, 80*time.Second)}
		sky.disasters = append(sky.disasters, away)
	}
	for i := range 1 + r.IntN(3) {
		plans = append(plans, makePlan(r, i, begun, *sky))
	}
	return plans
}

var policies = []schedule.Overlap{schedule.Skip, schedule.BufferOne, schedule.BufferAll, schedule.Allow,
	schedule.CancelOther, schedule.TerminateOther}

func makePlan(r *rand.Rand, i int, begun time.Time, sky weather) *plan {
	p := &plan{id: fmt.Sprint(planned, i), answered: make(map[string]int), unknown: make(map[string]int),
		known: make(map[string]bool)}
	at := duration(r, 0, sky.lasts/2)
	every := 7 + r.IntN(34)
	p.spec.Overlap = policies[r.IntN(len(policies))]
	if r.IntN(2) == 0 {
		p.beat.every = every
		p.spec.Cron = fmt.Sprint("@every ", every, "s")
		if r.IntN(3) == 0 {
			p.spec.Start = begun.Add(at + time.Duration(r.IntN(5000))*time.Millisecond).Truncate(time.Second)
		}
	} else {
		p.beat.berlin, p.beat.hour = r.IntN(3) == 0, r.IntN(3) == 0
		p.spec.Cron = p.beat.cron(every, r.IntN(every))
		if p.beat.berlin {
			p.spec.Zone = "Europe/Berlin"
		}
	}
	last := min(at+time.Duration(every*(1+r.IntN(6)))*time.Second, sky.lasts+30*time.Second)
	p.spec.End = begun.Add(last + time.Duration(every)*time.Second/2 + 5*time.Second)
	if r.IntN(4) == 0 {
		p.spec.Limit = 1 + r.IntN(3)
	}
	if r.IntN(4) == 0 {
		p.spec.Jitter = events.Duration(time.Duration(1+r.IntN(6)) * time.Second)
	}
	if r.IntN(4) == 0 {
		p.spec.CatchUp = events.Duration(time.Duration(10+r.IntN(20)) * time.Second)
	}
	ops := brief(r, "call step long hurry", 2)
	if r.IntN(4) > 0 { // mostly longer than the time between two occurrences
		lasts := float64(every) * (0.3 + 2*r.Float64()) * float64(time.Second)
		ops = append(ops, op{Do: "sleep", For: time.Duration(lasts)})
	}
	put := query.PutSchedule{Schedule: query.Schedule{ID: p.id, Spec: p.spec,
		Run: query.Start{Orchestration: scripted.Name(), Input: payload(script{Sum: int64(i), Ops: ops})}}}
	p.asks(at, "put", query.MethodPutSchedule, query.Question{Put: &put})
	span := last - at
	change := func(at time.Duration, what string, c query.ScheduleChange) {
		p.asks(at, what, query.MethodChangeSchedule, query.Question{Schedule: p.id, Change: &c})
	}
	within := func() time.Duration { return at + time.Duration(r.Int64N(int64(span))) }
	if r.IntN(3) == 0 {
		p.asks(within(), "put again", query.MethodPutSchedule, query.Question{Put: &put})
	}
	for range r.IntN(6) / 4 {
		change(within(), "trigger", query.ScheduleChange{Trigger: true})
	}
	if r.IntN(4) == 0 {
		from := within()
		change(from, "pause", query.ScheduleChange{Pause: true, Note: "as it was drawn"})
		lasts := 5*time.Second + time.Duration(r.Int64N(int64(25*time.Second)))
		change(from+lasts, "resume", query.ScheduleChange{Resume: true})
	}
	if r.IntN(4) == 0 && p.spec.Start.IsZero() && !p.beat.hour { // of the time before there was a schedule
		b := query.Backfill{From: begun.Add(-time.Duration(every*(2+r.IntN(2))) * time.Second),
			To: begun.Add(-time.Duration(3+r.IntN(4)) * time.Second)}
		c := query.ScheduleChange{Backfill: &b}
		if p.spec.Overlap == schedule.Allow && r.IntN(2) == 0 {
			c.Overlap = schedule.Allow
		}
		change(within(), "backfill", c)
		last := &p.requests[len(p.requests)-1]
		last.from, last.to = b.From, b.To
	}
	slices.SortStableFunc(p.requests, func(a, b request) int { return int(a.at - b.at) })
	return p
}

func (p *plan) asks(at time.Duration, what, method string, q query.Question) {
	p.requests = append(p.requests, request{at: at, what: what, method: method, question: q})
}

// cron writes the pattern of each few seconds of a minute, from one on.
func (b *beat) cron(every, from int) string {
	var all []string
	for s := from; s < 60; s += every {
		b.seconds = append(b.seconds, s)
		all = append(all, fmt.Sprint(s))
	}
	hour := "*"
	switch {
	case b.hour && b.berlin:
		hour = "1"
	case b.hour:
		hour = "0"
	}
	return strings.Join(all, ",") + " * " + hour + " * * *"
}

// times lists the nominal times after a moment and before another one, with their moments.
func (b beat) times(anchor, after, before time.Time) map[string]time.Time {
	all := make(map[string]time.Time)
	for t := after.Truncate(time.Second); t.Before(before); t = t.Add(time.Second) {
		is := slices.Contains(b.seconds, t.Second())
		if b.every > 0 {
			is = (t.Unix()-anchor.Unix())%int64(b.every) == 0
		}
		if is && t.After(after) {
			all[b.name(t)] = t
		}
	}
	return all
}

// name is the nominal time of a moment.
func (b beat) name(t time.Time) string {
	const local = "2006-01-02T15:04:05"
	switch {
	case b.berlin && b.hour:
		return t.Add(time.Hour).Format(local)
	case b.berlin:
		return t.Add(time.Hour).Format(local) + "+01:00"
	}
	return t.Format(local) + "Z"
}

// follow sends the requests of a plan, each until it is answered.
func (w *world) follow(p *plan) {
	c := brokersim.Connect(w.broker, w.road("client of "+p.id))
	defer c.Close()
	for i, x := range p.requests {
		if !w.until(x.at) || !w.ask(c, p, fmt.Sprint(p.id, " ", i), x) {
			return
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	p.done = true
}

// ask sends a request until it is answered. The orchestrator that gets it is one that is alive.
func (w *world) ask(c *brokersim.Bus, p *plan, what string, x request) bool {
	data, err := json.Marshal(x.question)
	if err != nil {
		panic(err)
	}
	from := time.Now()
	for n := 1; w.context.Err() == nil; n++ {
		ctx, cancel := context.WithTimeout(w.context, 10*time.Second)
		_, err := c.Request(ctx, x.method, data)
		cancel()
		if err == nil && w.weather.fateOf(w.seed, "client", what, n, w.calm()).unanswered {
			err = errLost
		}
		w.note("client of "+p.id, fmt.Sprintf("%s: %v", x.what, err))
		w.mu.Lock()
		if x.what == "put" && n == 1 {
			p.put.from = from
		}
		if err == nil {
			p.answered[x.what]++
			if x.what == "put" {
				p.put.till = time.Now()
			}
		} else {
			p.unknown[x.what]++
		}
		w.mu.Unlock()
		var refused *broker.ResponseError
		switch {
		case err == nil:
			return true
		case errors.As(err, &refused) && refused.Code == history.Permanent.String():
			w.fault(fmt.Sprintf("the client of %s was refused to %s: %v", p.id, x.what, err))
			return false
		}
		w.wait(time.Second)
	}
	return false
}

// ---- What the database has.

// rescheduled notes a change of a schedule that is stored.
func (w *world) rescheduled(r *road, c history.ScheduleChange) {
	is, err := schedule.Decode(c.Data)
	if err != nil {
		w.fault(fmt.Sprintf("%s has stored a schedule that cannot be read: %v", r.name, err))
		return
	}
	x := revision{at: time.Now(), by: r.name, ahead: w.ahead(r), row: c.Schedule, expected: c.Expected, is: is,
		ends: make(map[string]events.How)}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sends(r, c.Messages)
	p := w.planOf(c.ID)
	if len(p.rows) > 0 {
		x.before = p.rows[len(p.rows)-1].is
	}
	for _, m := range c.Messages {
		d, err := events.Decode("rondo", m.Subject, m.Header, m.Body, "")
		if err != nil {
			w.faults = append(w.faults, fmt.Sprintf("%s has stored a message that cannot be read: %v", r.name, err))
			continue
		}
		switch content := d.Content.(type) {
		case *events.Start:
			x.starts = append(x.starts, d)
			p.known[d.Instance] = true
			if a, ok := check.AcknowledgedBy(d, x.at); ok {
				w.said = append(w.said, a)
			}
		case *events.Control:
			x.ends[d.Instance] = content.How
		default:
			w.faults = append(w.faults, fmt.Sprintf("%s sends %s", c.ID, content.Verb()))
		}
	}
	w.countRevision(p, x)
	p.rows = append(p.rows, x)
}

// ahead is by how much the clock of an orchestrator is ahead.
func (w *world) ahead(r *road) time.Duration {
	for i, d := range w.weather.orchestratorsAhead {
		if strings.HasPrefix(r.name, fmt.Sprint("orchestrator-", i, "/")) {
			return d
		}
	}
	return 0
}

func (w *world) planOf(id string) *plan {
	return w.plans[slices.IndexFunc(w.plans, func(p *plan) bool { return p.id == id })]
}

// notesRun notes when the instance of a run begins and ends. mu is held.
func (w *world) notesRun(instance string, ended bool) {
	if !isPlanned(instance) {
		return
	}
	w.moments++
	x := w.runs[instance]
	if x.born == 0 {
		x.born, x.bornAt = w.moments, time.Now()
	}
	if ended && x.died == 0 {
		x.died, x.diedAt = w.moments, time.Now()
	}
	w.runs[instance] = x
}

// publishes sees a message of a schedule that is published: it must be stored.
func (w *world) publishes(r *road, m events.Wire) {
	if len(w.plans) == 0 || !strings.HasPrefix(m.Subject, "rondo.internal_start.") {
		return
	}
	d, err := events.Decode("rondo", m.Subject, m.Header, m.Body, "")
	if err != nil || !isPlanned(d.Instance) || strings.Contains(d.Instance, "~") {
		return
	}
	id, _, _ := strings.Cut(d.Instance, "@")
	w.mu.Lock()
	known := w.planOf(id).known[d.Instance]
	w.mu.Unlock()
	if !known {
		w.fault(fmt.Sprintf("%s publishes the start of %s, which is not stored", r.name, d.Instance))
	}
}

// countRevision counts what schedules go through. mu is held.
func (w *world) countRevision(p *plan, x revision) {
	is := func(what string, yes bool) {
		if yes {
			w.counts[what]++
		}
	}
	if x.before == nil {
		is("schedule put", true)
		return
	}
	was := p.rows[len(p.rows)-1]
	late := !was.row.WakeAt.IsZero() && x.at.Add(x.ahead).Sub(was.row.WakeAt) >= 2*time.Second
	is("a stand-in looks at a schedule", late && hostOf(x.by) != hostOf(was.by) && len(x.starts) > 0)
	is("run skipped", x.is.Skipped > x.before.Skipped)
	is("run buffered", len(x.is.Buffered) > len(x.before.Buffered))
	is("run missed", x.is.Missed > x.before.Missed)
	is("schedule triggered", len(x.is.Triggers) > len(x.before.Triggers))
	is("schedule backfilled", len(x.is.Backfills) > len(x.before.Backfills))
	is("schedule resumed", x.before.Paused && !x.is.Paused)
	for _, m := range x.starts {
		again := slices.ContainsFunc(x.before.Runs, func(r schedule.Run) bool { return r.Message == m.ID })
		is("start of a run sent again", again)
	}
	for _, r := range x.is.Runs {
		old := slices.ContainsFunc(x.before.Runs, func(b schedule.Run) bool { return b.Message == r.Message })
		is("run caught up", !old && r.Reason == schedule.CaughtUp)
	}
}

func hostOf(process string) string {
	host, _, _ := strings.Cut(process, "/")
	return host
}

// ---- The road to the schedules of the store. A world without schedules has none.

func (s storeOf) hasPlans() bool { return len(s.r.w.plans) > 0 }

// ChangeSchedule may conflict, or happen without an answer.
func (s storeOf) ChangeSchedule(ctx context.Context, c history.ScheduleChange) (entries []history.OutboxKey,
	ok bool, err error) {
	if !s.hasPlans() {
		return s.Store.ChangeSchedule(ctx, c)
	}
	what := "change schedule " + c.ID
	f, err := s.r.pass(ctx, what, true)
	if err != nil {
		return nil, false, fail(what, err)
	}
	if f.contended {
		s.r.w.count("contended")
		return nil, false, &history.Error{Class: history.Contended, Op: what, Err: errors.New("another was in the way")}
	}
	if f.ambiguous && f.chance < 0.5 { // it did not happen
		s.r.w.count("ambiguous")
		return nil, false, &history.Error{Class: history.Ambiguous, Op: what, Err: errLost}
	}
	entries, ok, err = s.Store.ChangeSchedule(ctx, c)
	switch {
	case err == nil && ok:
		s.r.w.rescheduled(s.r, c)
	case err == nil:
		s.r.w.count("two change a schedule")
	}
	s.r.Stand(ctx, what)
	if f.unanswered || f.ambiguous {
		s.r.w.upheaval(0)
	}
	if err == nil && (f.unanswered || f.ambiguous) {
		s.r.w.count("change of a schedule unanswered")
		return nil, false, &history.Error{Class: history.Ambiguous, Op: what, Err: errLost}
	}
	return entries, ok, err
}

func (s storeOf) Schedule(ctx context.Context, id string) (row history.Schedule, ok bool, err error) {
	if !s.hasPlans() {
		return s.Store.Schedule(ctx, id)
	}
	err = s.reach(ctx, "schedule "+id, func() error { row, ok, err = s.Store.Schedule(ctx, id); return err })
	return row, ok && err == nil, err
}

func (s storeOf) ListSchedules(ctx context.Context, f history.ScheduleFilter,
	p history.Page) (list history.ScheduleList, err error) {
	if !s.hasPlans() {
		return s.Store.ListSchedules(ctx, f, p)
	}
	err = s.reach(ctx, "list schedules", func() error { list, err = s.Store.ListSchedules(ctx, f, p); return err })
	return list, err
}

func (s storeOf) DueSchedules(ctx context.Context, before time.Time, limit int) (due []history.Schedule, err error) {
	if !s.hasPlans() {
		return s.Store.DueSchedules(ctx, before, limit)
	}
	err = s.reach(ctx, "due schedules", func() error {
		due, err = s.Store.DueSchedules(ctx, before, limit)
		return err
	})
	return due, err
}

func (s storeOf) Tombstones(ctx context.Context, ids []string) (gone []string, err error) {
	if !s.hasPlans() {
		return s.Store.Tombstones(ctx, ids)
	}
	err = s.reach(ctx, "tombstones "+slices.Min(ids), func() error {
		gone, err = s.Store.Tombstones(ctx, ids)
		return err
	})
	return gone, err
}

// Within gives a reader that goes along the road for the statuses of instances.
func (s storeOf) Within(bytes int) history.BoundedReader {
	if !s.hasPlans() {
		return s.Store.Within(bytes)
	}
	return boundedOf{s.Store.Within(bytes), s}
}

type boundedOf struct {
	history.BoundedReader
	s storeOf
}

func (b boundedOf) List(ctx context.Context, f history.Filter, p history.Page) (list history.InstanceList, err error) {
	what := "statuses"
	if len(f.IDs) > 0 {
		what += " " + slices.Min(f.IDs)
	}
	err = b.s.reach(ctx, what, func() error { list, err = b.BoundedReader.List(ctx, f, p); return err })
	return list, err
}
