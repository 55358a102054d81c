//go:build unix

package chaos_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/rondo-run/rondo/pkg/check"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// This file is what must be true at the end.

// settle waits until everything has ended that was started. Then it looks which of the messages that the broker may have lost are in no history: those were lost. They are
// sent again, as a client would that has waited in vain, and what waited for them has to end as well.
func (c *chaos) settle() {
	if err := c.probe(); err != nil && c.ctx.Err() == nil {
		c.t.Errorf("the system does not work when everything is healed: %v", err)
	}
	c.allEnd(false)
	lost := make(map[*job]bool)
	for _, d := range c.clients.doubt {
		lost[d.job] = true
	}
	for j := range lost {
		untaken, err := c.clients.untaken(j)
		if err != nil {
			c.t.Errorf("reading what %s has taken: %v", j.id, err)
		}
		if !j.ended.IsZero() {
			continue
		}
		var again []events.Message
		for _, m := range untaken {
			if !c.clients.doubted(j, m.ID) {
				c.t.Errorf("%s: message %s was acknowledged, and lost, though the broker has not lost its files after that", j.id, m.ID)
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
		open := c.clients.unfinished(time.Now().Add(long), doubted)
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
			c.t.Errorf("%s (%s) has not ended: %v", j.id, j.name, c.export(j.id))
		}
		c.t.Errorf("%d instances have not ended, and none has for %v", len(open), patience)
		return nil
	})
	if err != nil && c.ctx.Err() == nil {
		c.t.Error(err)
	}
}

// export writes the history of an instance that is not as it should be into the directory that is kept, and tells where.
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
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%d.txt", events.EncodeToken(instance), x)), text.Bytes(), 0o644); err != nil {
			return err.Error()
		}
	}
	return fmt.Sprintf("it is %s at event %d of execution %d; wakes at %v", info.Status, info.LastEvent, info.Execution, info.WakeAt)
}

// finishFollowing ends the clients, when all that was sent is acknowledged and all who wait were told.
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

// verdict is what was found at the end.
type verdict struct {
	instances, executions, events int
	ends                          []time.Time // of all instances, in order
	executed, executedAgain       int         // activities
	delivered, deliveredAgain     int         // messages to orchestrators
	deaths                        []string
	problems                      []string
}

func (v *verdict) bad(format string, args ...any) {
	v.problems = append(v.problems, fmt.Sprintf(format, args...))
}

// judge looks at everything that there is.
func (c *chaos) judge() *verdict {
	v := new(verdict)
	executed := c.readLedgers(v)
	jobs := make(map[string]*job)
	for _, j := range c.clients.jobs {
		jobs[j.id] = j
	}
	rows := make(map[string]history.Info)
	for _, info := range c.everything() {
		rows[info.Instance] = info
		v.instances++
		before := len(v.problems)
		c.judgeInstance(v, info, executed)
		if j := jobs[info.Instance]; j != nil {
			j.judge(v, info)
		} else if info.Status != round.Completed && !partOf(info, rows, jobs) {
			v.bad("%s (%s), which nobody has stopped, is %s: %v", info.Instance, info.Name, info.Status, info.Error)
		}
		if len(v.problems) > before && before < 20 {
			c.export(info.Instance)
		}
	}
	c.judgePromises(v, rows)
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

// partOf tells whether an instance is below a job that was stopped, and was stopped with it.
func partOf(info history.Info, rows map[string]history.Info, jobs map[string]*job) bool {
	return info.Parent != nil && jobs[info.Parent.Instance] != nil && jobs[info.Parent.Instance].status != round.Completed
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
		v.bad("%s (%s) is %s with error %v, want %s", j.id, j.name, info.Status, info.Error, j.status)
	}
	if j.want != nil && string(info.Output) != string(payload(j.want)) {
		v.bad("%s (%s) has output %s, want %s", j.id, j.name, info.Output, payload(j.want))
	}
}

// judgeInstance checks one history: by the rules of package check, that children and parents agree, and that no activity has a result that was not executed.
func (c *chaos) judgeInstance(v *verdict, info history.Info, executed map[string]int) {
	in := check.Instance{ID: info.Instance, Row: info.Row, History: make(map[int64][]events.Event), Values: make(map[string]events.Payload)}
	for x := int64(1); x <= info.Execution; x++ {
		h, err := history.Export(c.ctx, c.clients.store, info.Instance, x)
		if err != nil {
			v.bad("reading execution %d of %s: %v", x, info.Instance, err)
			return
		}
		in.History[x] = h.Events
		v.executions++
		v.events += len(h.Events)
		c.judgeAnswers(v, info, x, h.Events, executed)
	}
	values, err := c.clients.store.Values(c.ctx, info.Instance)
	if err != nil {
		v.bad("reading the values of %s: %v", info.Instance, err)
	}
	for k, value := range values {
		in.Values[k] = value.Data
	}
	if err := in.Check(); err != nil {
		v.bad("%v", err)
	}
	if info.Status.Ended() {
		v.ends = append(v.ends, info.EndedAt)
	}
}

func (c *chaos) judgeAnswers(v *verdict, info history.Info, execution int64, list []events.Event, executed map[string]int) {
	children, calls := make(map[int64]string), make(map[int64]*events.ActivityScheduled)
	for _, e := range list {
		switch f := e.Fact.(type) {
		case *events.ChildStarted:
			children[e.ID] = f.Instance
		case *events.ActivityScheduled:
			calls[e.ID] = f
		case *events.ChildCompleted:
			child, err := c.clients.store.Instance(c.ctx, children[f.Schedule])
			if err != nil || child.Status != round.Completed || string(child.Output) != string(f.Output) {
				v.bad("%s has that child %q completed with %s; the child is %s with %s (%v)", info.Instance, children[f.Schedule], f.Output, child.Status, child.Output, err)
			}
		case *events.Launched:
			if child, err := c.clients.store.Instance(c.ctx, f.Instance); err != nil || child.Status != round.Completed {
				v.bad("%s has launched %s, which is %s (%v)", info.Instance, f.Instance, child.Status, err)
			}
		case *events.ActivityCompleted:
			call, first := calls[f.Schedule], f.Schedule
			if call != nil && call.First != 0 {
				first = call.First
			}
			key := events.IdempotencyKey(info.Instance, info.Life, execution, first)
			if call == nil || executed[executionOf(key, call.Attempt)] == 0 {
				v.bad("%s has a result of the activity with key %s, which nobody has executed", info.Instance, key)
			}
		}
	}
}

// judgePromises checks that what clients were promised has been kept.
func (c *chaos) judgePromises(v *verdict, rows map[string]history.Info) {
	for _, p := range c.clients.promises.all {
		row, ok := rows[p.Instance]
		if !ok {
			v.bad("%s of %s was promised, and there is no such instance", p.Promised, p.Instance)
			continue
		}
		switch p.Promised {
		case "start":
			if row.StartMessage != p.Message || row.Name != p.Name {
				v.bad("the start %s of %s was promised, which is a %s by %s", p.Message, p.Instance, row.Name, row.StartMessage)
			}
		case "end":
			if row.Status != p.Status || p.Status == round.Completed && !bytes.Equal(row.Output, p.Output) {
				v.bad("somebody was told that %s is %s with %s; it is %s with %s", p.Instance, p.Status, p.Output, row.Status, row.Output)
			}
		}
	}
}

// judgeLog looks for what no process may say.
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
}

// readLedgers counts what was done more than once, and gives how often each attempt of each activity was executed (see [executionOf]).
func (c *chaos) readLedgers(v *verdict) map[string]int {
	executed := make(map[string]int)
	for _, p := range c.fleet.workers {
		c.readLedger(p, executed)
	}
	for _, n := range executed {
		v.executed += n
		v.executedAgain += n - 1
	}
	delivered := make(map[string]int)
	for _, p := range c.fleet.orchestrators {
		c.readLedger(p, delivered)
	}
	for _, n := range delivered {
		v.delivered += n
		v.deliveredAgain += n - 1
	}
	return executed
}

func (c *chaos) readLedger(p *process, count map[string]int) {
	data, err := os.ReadFile(p.role.Ledger)
	if err != nil {
		c.t.Error(err)
		return
	}
	for line := range strings.Lines(string(data)) {
		count[strings.TrimSuffix(line, "\n")]++
	}
}
