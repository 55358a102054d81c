//go:build unix

package chaos_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rondo-run/rondo/integration/internal/work"
	"github.com/rondo-run/rondo/internal/check"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// This file has the conditions that must hold at the end.

// settle waits until all started jobs have ended. Then it lists the messages that the broker may
// have lost and that are in no history: those were lost. It sends them again, as a client does that
// has waited in vain, and the jobs that waited for them must end as well.
func (c *chaos) settle() {
	if err := c.probe(); err != nil && c.ctx.Err() == nil {
		c.t.Errorf("the system does not work when everything is healed: %v", err)
	}
	c.allEnd(false)
	for _, j := range c.clients.unfinished(time.Now().Add(work.Long), true) {
		if !j.doubted {
			continue // it is already reported
		}
		untaken, err := c.clients.untaken(j)
		if err != nil {
			c.t.Errorf("reading what %s has taken: %v", j.ID, err)
		}
		var again []events.Message
		for _, m := range untaken {
			if !c.clients.doubted(j, m.ID) {
				c.t.Errorf("%s: message %s was acknowledged, and lost, though the broker has not "+
					"lost its files after that", j.ID, m.ID)
				continue
			}
			c.clients.lost = append(c.clients.lost, m)
			again = append(again, m)
		}
		c.clients.say(c.t.Context(), j, again...)
	}
	c.allEnd(true)
}

// allEnd waits until all jobs have ended. It has patience for as long as some end.
func (c *chaos) allEnd(doubted bool) {
	most, before := 0, time.Now()
	err := eventually(c.ctx, time.Hour, func() error {
		open := c.clients.unfinished(time.Now().Add(work.Long), doubted)
		if len(open) == 0 {
			return nil
		}
		if most == 0 || len(open) < most {
			most, before = len(open), time.Now()
		}
		if time.Since(before) < patience {
			return errors.New("they may still end")
		}
		for _, j := range open[:min(20, len(open))] {
			c.t.Errorf("%s (%s) has not ended: %v", j.ID, j.Name, c.export(j.ID))
		}
		c.t.Errorf("%d instances have not ended, and none has for %v", len(open), patience)
		return nil
	})
	if err != nil && c.ctx.Err() == nil {
		c.t.Error(err)
	}
}

// export writes the history of a wrong instance into the directory that is kept, and returns its
// path.
func (c *chaos) export(instance string) string {
	info, err := c.clients.store.Instance(c.t.Context(), instance)
	if err != nil {
		return err.Error()
	}
	dir := filepath.Join(c.fleet.dir, "histories")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err.Error()
	}
	for x := int64(1); x <= info.Execution; x++ {
		h, err := history.Export(c.t.Context(), c.clients.store, instance, x)
		if err != nil {
			return err.Error()
		}
		var text bytes.Buffer
		for _, e := range h.Events {
			fmt.Fprintf(&text, "%d %s %s %+v\n", e.ID, e.At.Format(time.RFC3339Nano), e.Fact.Kind(), e.Fact)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%d.txt", events.EncodeToken(instance), x)),
			text.Bytes(), 0o644); err != nil {
			return err.Error()
		}
	}
	return fmt.Sprintf("it is %s at event %d of execution %d; wakes at %v", info.Status, info.LastEvent,
		info.Execution, info.WakeAt)
}

// finishFollowing ends the clients, when all messages are acknowledged and all waiting clients have
// their outcome.
func (c *chaos) finishFollowing(following *sync.WaitGroup) {
	told := make(chan struct{})
	go func() {
		c.clients.all.Wait()
		close(told)
	}()
	select {
	case <-told:
	case <-time.After(patience):
		c.t.Errorf("everything has ended, but somebody who waits has not been told within %v", patience)
	case <-c.ctx.Done():
	}
	c.clients.stop()
	following.Wait()
}

// verdict has the findings at the end.
type verdict struct {
	checked                   check.Report
	ends                      []time.Time // of all instances, in order
	executed, executedAgain   int         // activities
	delivered, deliveredAgain int         // messages to orchestrators
	deaths                    []string
	problems                  []string
}

func (v *verdict) bad(format string, args ...any) {
	v.problems = append(v.problems, fmt.Sprintf(format, args...))
}

// judge judges all instances, the system and the logs.
func (c *chaos) judge() *verdict {
	v := new(verdict)
	executed := c.readLedgers(v)
	jobs := make(map[string]*job)
	for _, j := range c.clients.jobs {
		jobs[j.ID] = j
		v.ends = append(v.ends, j.ended)
	}
	slices.SortFunc(v.ends, time.Time.Compare)
	for _, info := range c.everything() {
		before := len(v.problems)
		c.judgeInstance(v, info, executed)
		if j := jobs[info.Instance]; j != nil {
			j.judge(v, info)
		} else if isStrange(info.Instance) {
			judgeStrange(v, info)
		} else if info.Status != round.Completed { // a probe, or a child: no client has stopped one
			v.bad("%s (%s) is %s: %v", info.Instance, info.Name, info.Status, info.Error)
		}
		if len(v.problems) > before && before < 20 {
			c.export(info.Instance)
		}
	}
	c.judgeSystem(v)
	for _, p := range c.fleet.processes() {
		v.deaths = append(v.deaths, p.died()...)
		c.judgeLog(v, p)
	}
	for i, p := range v.problems {
		if i == 50 {
			c.t.Errorf("and %d more", len(v.problems)-i)
			break
		}
		c.t.Error(p)
	}
	return v
}

// everything lists all instances.
func (c *chaos) everything() (all []history.Info) {
	page := history.Page{Limit: 1000}
	for {
		got, err := c.clients.store.List(c.ctx, history.Filter{}, page)
		if err != nil {
			c.t.Fatal(err)
		}
		all = append(all, got.Instances...)
		if page.Cursor = got.Next; got.Next == "" {
			return all
		}
	}
}

// judge checks that a job has ended as it must.
func (j *job) judge(v *verdict, info history.Info) {
	if info.Status != j.status {
		v.bad("%s (%s) is %s with error %v, want %s", j.ID, j.Name, info.Status, info.Error, j.status)
	}
	if j.Want != nil && string(info.Output) != string(work.Payload(j.Want)) {
		v.bad("%s (%s) has output %s, want %s", j.ID, j.Name, info.Output, work.Payload(j.Want))
	}
}

// judgeInstance checks a rule that the checker cannot: each result of an activity has an execution.
func (c *chaos) judgeInstance(v *verdict, info history.Info, executed map[string]int) {
	for x := int64(1); x <= info.Execution; x++ {
		h, err := history.Export(c.ctx, c.clients.store, info.Instance, x)
		if err != nil {
			v.bad("reading execution %d of %s: %v", x, info.Instance, err)
			return
		}
		c.judgeAnswers(v, info, x, h.Events, executed)
	}
}

func (c *chaos) judgeAnswers(v *verdict, info history.Info, execution int64, list []events.Event,
	executed map[string]int) {
	calls := make(map[int64]*events.ActivityScheduled)
	for _, e := range list {
		switch f := e.Fact.(type) {
		case *events.ActivityScheduled:
			calls[e.ID] = f
		case *events.ActivityCompleted:
			call, first := calls[f.Schedule], f.Schedule
			if call != nil && call.First != 0 {
				first = call.First
			}
			key := events.IdempotencyKey(info.Instance, info.Incarnation, execution, first)
			if call == nil || executed[executionOf(key, call.Attempt)] == 0 {
				v.bad("%s has a result of the activity with key %s, which nobody has executed", info.Instance, key)
			}
		default:
		}
	}
}

// judgeSystem lets the checker judge everything: the histories, the acknowledgements of clients,
// and that nothing is in flight any more.
func (c *chaos) judgeSystem(v *verdict) {
	err := eventually(c.ctx, patience, func() error {
		for p := range partitions {
			if b, err := c.clients.bus.Backlog(c.ctx, p); err != nil || b.Waiting+b.Held > 0 {
				return fmt.Errorf("partition %d has %d messages waiting and %d held (%w)", p, b.Waiting, b.Held, err)
			}
		}
		n, err := c.clients.store.CountOutbox(c.ctx, 10)
		if err == nil && n > 0 {
			err = fmt.Errorf("%d entries are in the outbox", n)
		}
		return err
	})
	if err != nil {
		v.bad("everything has ended, and something is in flight still: %v", err)
	}
	v.checked, err = check.System(c.ctx, c.clients.store, check.Options{
		Acknowledgements: []check.Acknowledgements{c.clients.acks.read()}, NothingRemoved: true, Quiescent: true,
		Broker: c.clients.bus, Dead: c.clients.bus, Prefix: c.clients.bus.Prefix(),
	})
	if err != nil {
		v.bad("checking: %v", err)
	}
	for _, f := range v.checked.Findings {
		v.bad("%v", f)
	}
	if more := v.checked.Total() - int64(len(v.checked.Findings)); more > 0 {
		v.bad("and the checker has found %d more", more)
	}
}

// judgeLog searches a process's log for panics and fatal errors.
func (c *chaos) judgeLog(v *verdict, p *process) {
	f, err := os.Open(filepath.Join(c.fleet.logs(), p.role.ID+".log"))
	if err != nil {
		v.bad("%v", err)
		return
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		if l := lines.Text(); strings.HasPrefix(l, "panic:") || strings.HasPrefix(l, "fatal error:") {
			v.bad("%s: %s", p.role.ID, l)
		}
	}
	if err := lines.Err(); err != nil {
		v.bad("the log of %s cannot be read to its end: %v", p.role.ID, err)
	}
}

// readLedgers counts deliveries and executions, and returns how often each attempt of each activity
// was executed (see [executionOf]).
func (c *chaos) readLedgers(v *verdict) (executed map[string]int) {
	executed, v.executed, v.executedAgain = c.readLedgersOf(c.fleet.workers)
	_, v.delivered, v.deliveredAgain = c.readLedgersOf(c.fleet.orchestrators)
	return executed
}

// readLedgersOf counts the lines in the ledgers of some processes: how often each one occurs, all
// lines, and repetitions.
func (c *chaos) readLedgersOf(processes []*process) (times map[string]int, all, again int) {
	times = make(map[string]int)
	for _, p := range processes {
		data, err := os.ReadFile(p.role.Ledger)
		if err != nil {
			c.t.Error(err)
			continue
		}
		for line := range strings.Lines(string(data)) {
			times[strings.TrimSuffix(line, "\n")]++
			all++
		}
	}
	return times, all, all - len(times)
}
