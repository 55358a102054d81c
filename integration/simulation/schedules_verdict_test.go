package simulation

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/internal/schedule"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// The verdict about schedules does not use the code that decides. It knows the pattern of each
// plan, and compares the instances, the times of their commits, and the states of the row.

const (
	// clocksDiffer is more than a clock of an orchestrator is ahead or behind.
	clocksDiffer = 2*time.Second + time.Millisecond
	// lookTakes bounds the time from the read of the statuses to the commit of a decision.
	lookTakes = 11 * time.Second
)

// leftOf names what a plan still has to do; "" if nothing.
func (w *world) leftOf(p *plan) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !p.done {
		return "the client of " + p.id + " has requests"
	}
	x := p.rows[len(p.rows)-1]
	unseen := slices.IndexFunc(x.is.Runs, func(r schedule.Run) bool { return !r.Seen && !r.Ended })
	switch {
	case len(x.is.Triggers)+len(x.is.Buffered)+len(x.is.Backfills) > 0:
		return fmt.Sprintf("%s has pending occurrences: %+v", p.id, x.is)
	case unseen >= 0:
		return fmt.Sprintf("%s has a run that was not seen: %+v", p.id, x.is.Runs[unseen])
	case !x.row.WakeAt.IsZero():
		return fmt.Sprintf("%s is to be looked at %v", p.id, x.row.WakeAt)
	}
	return ""
}

// planVerdict is the verdict about one plan.
type planVerdict struct {
	w    *world
	p    *plan
	bad  func(format string, args ...any)
	last revision

	due       map[string]time.Time // by nominal time: those of the pattern, from the put on
	before    map[string]time.Time // those of the backfills
	triggers  map[string]time.Time
	left      time.Time // the end of the last pause: occurrences until then may be left out
	instances map[string]round.Status
	began     map[string]int // the first revision that starts a run, by instance
	messages  map[string]bool
}

// judgePlans judges the schedules.
func (w *world) judgePlans() (faults []string) {
	for _, p := range w.plans {
		if !p.done || len(p.rows) == 0 {
			continue // the world did not come to its end
		}
		v := &planVerdict{w: w, p: p, last: p.rows[len(p.rows)-1], began: make(map[string]int),
			bad: func(format string, args ...any) {
				faults = append(faults, fmt.Sprintf("%s (%s, %s): ", p.id, p.spec.Overlap, p.spec.Cron)+
					fmt.Sprintf(format, args...))
			},
			before: make(map[string]time.Time), triggers: make(map[string]time.Time),
			instances: make(map[string]round.Status), messages: make(map[string]bool)}
		v.expect()
		v.read()
		for i := range p.rows {
			v.revision(i)
		}
		v.runs()
		v.counters()
		v.order()
	}
	return faults
}

// expect computes the nominal times.
func (v *planVerdict) expect() {
	created := v.p.rows[0].is.Created
	if put := v.p.put; created.Before(put.from.Add(-clocksDiffer)) || created.After(put.till.Add(clocksDiffer)) {
		v.bad("created at %v, the client has put it from %v to %v", created, put.from, put.till)
	}
	if v.last.is.Edition != 1 || !v.last.is.Created.Equal(created) {
		v.bad("the same put has changed it: edition %d, created at %v and %v", v.last.is.Edition, created,
			v.last.is.Created)
	}
	anchor, after := created, created
	if start := v.p.spec.Start; !start.IsZero() {
		anchor = start
		if start.After(after) { // the moment of the put has passed
			after = start.Add(-1)
		}
	}
	v.due = v.p.beat.times(anchor, after, v.p.spec.End)
	for _, x := range v.p.requests {
		if x.what == "backfill" {
			v.before = v.p.beat.times(anchor, x.from.Add(-1), x.to)
		}
	}
	for _, x := range v.p.rows {
		for _, t := range x.is.Triggers {
			v.triggers[t.Nominal] = t.At
		}
		if x.before != nil && x.before.Paused && !x.is.Paused {
			v.left = x.row.ChangedAt.Truncate(time.Millisecond)
		}
	}
}

// read reads the instances.
func (v *planVerdict) read() {
	page := history.Page{Limit: 1000}
	list, err := v.w.store.List(v.w.context, history.Filter{IDPrefix: v.p.id + "@"}, page)
	if err != nil || list.Next != "" {
		v.bad("the list of its runs: %v", err)
	}
	for _, x := range list.Instances {
		if strings.Contains(x.Instance, "~") {
			continue
		}
		v.instances[x.Instance] = x.Status
		if v.kind(x.Instance) == "" {
			v.bad("no occurrence is that of %s", x.Instance)
		}
	}
}

func nominalOf(instance string) string {
	_, nominal, _ := strings.Cut(instance, "@")
	return nominal
}

// kind is what an instance is a run of, by its id: "due", "backfill", "trigger", or "".
func (v *planVerdict) kind(instance string) string {
	nominal := nominalOf(instance)
	for kind, all := range map[string]map[string]time.Time{"due": v.due, "backfill": v.before, "trigger": v.triggers} {
		if _, is := all[nominal]; is {
			return kind
		}
	}
	return ""
}

// moment is the moment of the occurrence of a run.
func (v *planVerdict) moment(instance string) time.Time {
	nominal := nominalOf(instance)
	for _, all := range []map[string]time.Time{v.due, v.before, v.triggers} {
		if at, is := all[nominal]; is {
			return at
		}
	}
	return time.Time{}
}

// revision judges one change of the row.
func (v *planVerdict) revision(i int) {
	x := v.p.rows[i]
	now := x.at.Add(x.ahead) // or a moment later than the decision
	if i > 1 && x.expected != v.p.rows[i-1].expected+1 {
		v.bad("a change expects version %d, and the one before %d", x.expected, v.p.rows[i-1].expected)
	}
	var fresh []string // the instances that it starts
	for _, m := range x.starts {
		life := v.w.runs[m.Instance]
		switch _, began := v.began[m.Instance]; {
		case v.messages[m.ID]:
			if life.born > 0 && life.bornAt.Before(x.at.Add(-lookTakes)) {
				v.bad("the start of %s is sent again, though there is an instance", m.Instance)
			}
			continue
		case began && v.kind(m.Instance) != "backfill":
			v.bad("%s is started with two messages", m.Instance)
		case !began:
			v.began[m.Instance] = i
		}
		fresh = append(fresh, m.Instance)
		v.messages[m.ID] = true
		at := v.moment(m.Instance)
		buffered := x.before != nil && slices.ContainsFunc(x.before.Buffered, func(b schedule.Pending) bool {
			return b.Nominal == nominalOf(m.Instance)
		})
		switch kind := v.kind(m.Instance); {
		case now.Before(at):
			v.bad("%s is started %v before its time", m.Instance, at.Sub(now))
		case kind == "due" && (x.before == nil || x.before.Paused):
			v.bad("%s is started during a pause", m.Instance)
		case kind == "due" && !buffered && i > v.resumed() && !at.After(v.left):
			v.bad("%s came due during a pause, and is started", m.Instance)
		}
	}
	if x.before == nil {
		return
	}
	v.told(x, fresh)
	if missed := x.is.Missed - x.before.Missed; missed > 0 {
		var late int64
		for _, at := range v.due {
			old := at.Before(now.Add(-v.catchUp()))
			if old && at.After(x.before.Cursor.At) && !at.After(x.is.Cursor.At) {
				late++
			}
		}
		if missed > late {
			v.bad("%d occurrences are missed, and %d of them were late, at %v", missed, late, now)
		}
	}
	if v.p.spec.Overlap == schedule.Skip && x.is.Skipped > x.before.Skipped && len(fresh) == 0 {
		if !v.someRunBefore(i, x.at.Add(-lookTakes)) {
			v.bad("an occurrence is skipped at %v, and no run is there", now)
		}
	}
	held := make(map[bool]int) // during a pause, a trigger does not wait for the occurrences of the schedule
	for _, b := range x.is.Buffered {
		held[b.Reason == schedule.Triggered]++
	}
	if v.p.spec.Overlap == schedule.BufferOne && (held[false] > 1 || held[true] > 1) {
		v.bad("%d occurrences are buffered", len(x.is.Buffered))
	}
}

// catchUp is how late an occurrence may be.
func (v *planVerdict) catchUp() time.Duration {
	return cmp.Or(time.Duration(v.p.spec.CatchUp), 24*time.Hour) + time.Duration(v.p.spec.Jitter)
}

// resumed is the revision that ends the pause; that of the end if there is none.
func (v *planVerdict) resumed() int {
	for i, x := range v.p.rows {
		if x.before != nil && x.before.Paused && !x.is.Paused {
			return i
		}
	}
	return len(v.p.rows)
}

// someRunBefore reports whether a run that an earlier revision has started lasts until after a
// moment.
func (v *planVerdict) someRunBefore(i int, at time.Time) bool {
	for instance, began := range v.began {
		life := v.w.runs[instance]
		if began < i && (life.died == 0 || life.diedAt.After(at)) {
			return true
		}
	}
	return false
}

// told judges what ends other runs: each run that was seen is told to end when a later one starts,
// or waits.
func (v *planVerdict) told(x revision, fresh []string) {
	for instance, how := range x.ends {
		policy := v.p.spec.Overlap
		right := policy == schedule.CancelOther && how == events.Cancel ||
			policy == schedule.TerminateOther && how == events.Terminate
		if _, began := v.began[instance]; !began || !right {
			v.bad("%s is told to end by %s", instance, how)
		}
	}
	isNew := func(o string, all []schedule.Pending) bool {
		return !slices.ContainsFunc(all, func(b schedule.Pending) bool { return b.Nominal == o })
	}
	ends := false
	switch v.p.spec.Overlap {
	case schedule.CancelOther:
		ends = slices.ContainsFunc(x.is.Buffered, func(b schedule.Pending) bool {
			return b.Overlap == schedule.CancelOther && isNew(b.Nominal, x.before.Buffered)
		})
	case schedule.TerminateOther:
		ends = slices.ContainsFunc(fresh, func(instance string) bool { return v.kind(instance) != "backfill" })
	default:
	}
	if !ends {
		return
	}
	for _, r := range x.before.Runs {
		is := slices.IndexFunc(x.is.Runs, func(n schedule.Run) bool { return n.Instance == r.Instance })
		if !r.Seen || r.Ended || is < 0 || x.is.Runs[is].Ended {
			continue
		}
		told := slices.ContainsFunc(v.p.rows, func(y revision) bool {
			return !y.at.After(x.at) && y.ends[r.Instance] != ""
		})
		if !told {
			v.bad("%s goes on beside a later one, and is not told to end", r.Instance)
		}
	}
}

// runs judges the instances.
func (v *planVerdict) runs() {
	for _, instance := range slices.Sorted(maps.Keys(v.instances)) {
		if _, began := v.began[instance]; !began {
			v.bad("%s runs, and no change of the row starts it", instance)
		}
	}
	for _, instance := range slices.Sorted(maps.Keys(v.began)) {
		if _, is := v.instances[instance]; !is {
			v.bad("%s was started, and there is no instance", instance)
		}
	}
	for nominal := range v.before {
		if v.p.answered["backfill"] > 0 && !v.has(nominal) {
			v.bad("the backfill has not started %s", nominal)
		}
	}
	all := v.p.spec.Overlap == schedule.Allow || v.p.spec.Overlap == schedule.BufferAll
	for nominal := range v.triggers {
		if all && !v.has(nominal) {
			v.bad("the trigger %s has started nothing", nominal)
		}
	}
	if most := v.p.answered["trigger"] + v.p.unknown["trigger"]; len(v.triggers) < v.p.answered["trigger"] ||
		len(v.triggers) > most {
		v.bad("%d triggers, after %d answers to %d requests", len(v.triggers), v.p.answered["trigger"], most)
	}
	if all && v.p.spec.CatchUp == 0 && v.p.spec.Limit == 0 {
		for nominal, at := range v.due {
			if !v.has(nominal) && at.After(v.left) {
				v.bad("%s was not started", nominal)
			}
		}
		if v.last.is.Skipped > 0 && len(v.before) == 0 {
			v.bad("%d occurrences are skipped", v.last.is.Skipped)
		}
	}
}

func (v *planVerdict) has(nominal string) bool {
	_, is := v.instances[v.p.id+"@"+nominal]
	return is
}

// counters compares those of the row with the instances, and with the nominal times.
func (v *planVerdict) counters() {
	s := v.last.is
	if int(s.Started) != len(v.messages) {
		v.bad("it has started %d runs by its row, and %d by its messages", s.Started, len(v.messages))
	}
	started, required, limited := 0, 0, 0
	for instance := range v.began {
		if v.kind(instance) == "due" {
			limited++
		}
	}
	for _, at := range v.due {
		if at.After(v.left) {
			required++
		}
	}
	limit := v.p.spec.Limit
	if limit > 0 && limited > limit {
		v.bad("it has started %d runs, and the limit is %d", limited, limit)
	}
	started = len(v.messages)
	backfilled := 0
	for _, x := range v.p.rows {
		if x.before != nil && len(x.is.Backfills) > len(x.before.Backfills) {
			backfilled += len(v.before)
		}
	}
	others := len(v.triggers) + backfilled
	decided := started + int(s.Skipped) + int(s.Missed) - others
	if decided > len(v.due) || decided < required && (limit == 0 || limited < limit) {
		v.bad("%d runs are started, %d skipped, %d missed, of %d occurrences (%d after the last pause), "+
			"%d triggers and %d of backfills", started, s.Skipped, s.Missed, len(v.due), required,
			len(v.triggers), backfilled)
	}
	if v.p.spec.CatchUp == 0 && s.Missed > 0 {
		v.bad("%d occurrences are missed", s.Missed)
	}
}

// order judges which runs were there at once, and their order.
func (v *planVerdict) order() {
	all := slices.SortedFunc(maps.Keys(v.instances), func(a, b string) int {
		return cmp.Compare(v.w.runs[a].born, v.w.runs[b].born)
	})
	alone := v.p.spec.Overlap != schedule.Allow && v.p.spec.Overlap != schedule.TerminateOther
	var latest time.Time
	for i, instance := range all {
		life := v.w.runs[instance]
		if alone && i > 0 {
			if before := v.w.runs[all[i-1]]; before.died == 0 || before.died > life.born {
				v.bad("%s and %s run at once", all[i-1], instance)
			}
			if at := v.moment(instance); v.kind(instance) == "due" {
				if at.Before(latest) {
					v.bad("%s comes after a later one", instance)
				}
				latest = at
			}
		}
		switch v.instances[instance] {
		case round.Cancelled:
			v.w.counts["run cancelled"]++
		case round.Terminated:
			v.w.counts["run terminated"]++
		default:
		}
	}
	if v.p.spec.Overlap == schedule.CancelOther && len(all) > 0 && v.instances[all[len(all)-1]] != round.Completed {
		v.bad("its last run, %s, is %s", all[len(all)-1], v.instances[all[len(all)-1]])
	}
}

// endsOf returns how the schedules have told runs to end.
func (w *world) endsOf() map[string]events.How {
	all := make(map[string]events.How)
	for _, p := range w.plans {
		for _, x := range p.rows {
			maps.Copy(all, x.ends)
		}
	}
	return all
}
