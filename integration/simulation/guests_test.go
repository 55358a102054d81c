package simulation

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/internal/broker/brokersim"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
)

// makeGuests makes the jobs that only some worlds have.
func makeGuests(r *rand.Rand, sky weather) (jobs []*job) {
	start := func(j *job, id string, at time.Duration, s script, how events.StartConflict) {
		j.says = append(j.says, saying{at, events.Message{
			ID: j.id + id, Instance: j.id,
			Content: &events.Start{Orchestration: scripted.Name(), Input: payload(s), Conflict: how},
		}})
	}
	at := duration(r, 0, sky.lasts/2)
	for i := range sky.crowd {
		j := &job{id: fmt.Sprint("crowd-", i)}
		start(j, "-start", at+duration(r, 0, 20*time.Millisecond),
			script{Sum: int64(i), Ops: brief(r, "call call step hurry far", 4)}, events.KeepExisting)
		jobs = append(jobs, j)
	}
	for i := range sky.reborn {
		j := &job{id: fmt.Sprint("reborn-", i), reborn: true, deletes: sky.deletes}
		at, ops := duration(r, 0, sky.lasts/2), "call flaky fan sleep far far long long hurry"
		start(j, "-start", at, script{Sum: int64(i), Ops: brief(r, ops, 8)}, events.KeepExisting)
		for k := range 1 + r.IntN(3) {
			at += duration(r, 0, 8*time.Second)
			how := []events.StartConflict{events.ReplaceRunning, events.ReplaceRunning,
				events.RestartFinished}[r.IntN(3)]
			start(j, fmt.Sprint("-start-", k+2), at, script{Sum: int64(100 * (k + 1)), Ops: brief(r, ops, 8)}, how)
		}
		jobs = append(jobs, j)
	}
	for i := range sky.postbox {
		jobs = append(jobs, makePostbox(r, i, sky))
	}
	for _, d := range sky.disasters {
		if d.what != "outage" {
			continue
		}
		for i := range 2 + r.IntN(4) {
			j := &job{id: fmt.Sprint("outlived-", i)}
			start(j, "-start", max(0, d.at-duration(r, 1500*time.Millisecond, 4*time.Second)), script{Sum: int64(i),
				Ops: []op{{Do: "long", For: duration(r, 4*time.Second, 8*time.Second)}}}, events.KeepExisting)
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// makePostbox makes an instance that gets mailbox messages in bursts, and continues as new after
// some of them.
func makePostbox(r *rand.Rand, i int, sky weather) *job {
	j := &job{id: fmt.Sprint("postbox-", i)}
	for range 4 + r.IntN(8) {
		j.script.Ops = append(j.script.Ops, op{Do: "read", N: 1 + r.IntN(5)}, op{Do: "roll"})
	}
	at := duration(r, 0, sky.lasts/2)
	j.says = append(j.says, saying{at, events.Message{ID: j.id + "-start", Instance: j.id,
		Content: &events.Start{Orchestration: scripted.Name(), Input: payload(j.script)}}})
	for k := range letterCount(j.script.Ops) {
		if r.IntN(6) == 0 {
			at += duration(r, 0, 3*time.Second)
		}
		j.says = append(j.says, saying{at, events.Message{ID: fmt.Sprint(j.id, "-letter-", k+1), Instance: j.id,
			Content: &events.MailboxMessage{Mailbox: letters.Name(), Data: payload(k + 1)}}})
		if r.IntN(5) == 0 {
			j.again = append(j.again,
				saying{at + duration(r, time.Second, 20*time.Second), j.says[len(j.says)-1].message})
		}
	}
	slices.SortFunc(j.again, func(a, b saying) int { return int(a.at - b.at) })
	return j
}

// beOdd adds headers to a message that have a meaning elsewhere, and none in messages of clients.
func beOdd(w *events.Wire, chance float64) {
	odd := []struct{ name, value string }{
		{events.HeaderHeld, "worker-0"}, {events.HeaderDirectReply, "orchestrator-0/1"}, {events.HeaderIncarnation,
			"another"},
		{events.HeaderWorker, "worker-1"},
		{events.HeaderDue, "2026-01-01T00:00:00Z"}, {events.HeaderPending, "true"}, {events.HeaderOutcome, "done"},
		{events.HeaderAttempt, "0"},
		{events.HeaderTrace, "00-nonsense"}, {"Rondo-Again", "true"}, {"Nats-Rollup", "all"},
		{"Nats-Schedule-Target", "rondo.task._.double.1-1.job-0"}, {"Nats-TTL", "1s"},
	}
	for i, x := range odd {
		if int(chance*1000)>>(i%8)&1 == 1 {
			w.Header[x.name] = []string{x.value}
		}
	}
}

// isGarbage reports whether no instance takes the message of a subject: mailbox messages to
// instances that do not exist, and starts of unregistered orchestrations.
func isGarbage(subject string) bool {
	instance := subject[strings.LastIndexByte(subject, '.')+1:]
	return strings.HasPrefix(instance, "nobody-") || strings.HasPrefix(instance, "strange-")
}

// pour publishes garbage, all of it at once.
func (w *world) pour() {
	if w.weather.flood == 0 || !w.until(w.weather.lasts/4) {
		return
	}
	c := brokersim.Connect(w.broker, w.road("client who floods"))
	defer c.Close()
	for i := range w.weather.flood {
		m := events.Message{ID: fmt.Sprint("garbage-", i)}
		if i%3 == 0 {
			m.Instance, m.Content = fmt.Sprint("strange-", i),
				&events.Start{Orchestration: "unheard of", Input: payload(i)}
		} else {
			m.Instance, m.Content = fmt.Sprint("nobody-", i%50),
				&events.MailboxMessage{Mailbox: letters.Name(), Data: payload(i)}
		}
		wire, err := events.Encode(c.Prefix(), m)
		if err != nil {
			panic(err)
		}
		if c.Publish(w.context, wire) != nil {
			return
		}
		w.acknowledge(m)
	}
	w.count("floods")
}

// useAgain prepares the reuse of an id: perhaps an operator deletes the instance, despite messages
// in flight for it. When clients send everything once more, nothing is deleted: the last start of
// all must not be that of a deleted instance.
func (w *world) useAgain(j *job) bool {
	w.count("id used again")
	if !j.deletes || w.upsetsSoFar() > 0 {
		return true
	}
	w.turns.wait("client of "+j.id, "deletes it")
	_, err := w.store.Delete(w.context, []string{j.id}, history.Deletion{Force: true})
	if err == nil {
		w.count("instance deleted")
		w.mu.Lock()
		delete(w.stands, j.id)
		w.mu.Unlock()
	}
	return true
}

// isLast reports whether the instance of a job is the one that was to begin last, as far as history
// shows. A start that was to restart an ended instance, and found it running, leaves no trace: if a
// client sends it again after the end, it restarts the instance. For a deleted instance there is no
// record of the starts that it had taken.
func (w *world) isLast(instance string, s *events.Started) bool {
	for _, j := range w.jobs {
		if j.id != instance || !j.reborn || j.deletes || w.upset > 0 || w.counts["partitions"] > 0 {
			continue
		}
		for _, x := range j.says {
			if x.message.ID == s.Message && x.message.Content.(*events.Start).Conflict == events.RestartFinished {
				return true
			}
		}
		last := j.says[len(j.says)-1].message
		return last.Content.(*events.Start).Conflict != events.ReplaceRunning || s.Message == last.ID
	}
	return true
}

// countStart counts executions that begin with unread mailbox messages of the one before. mu is
// held.
func (w *world) countStart(written []events.Event) {
	if len(written) == 0 {
		return
	}
	started, ok := written[0].Fact.(*events.Started)
	if !ok || started.Carried == 0 {
		return
	}
	isLetter := func(e events.Event) bool {
		_, is := e.Fact.(*events.MessageReceived)
		return is
	}
	if slices.ContainsFunc(written[:min(len(written), 1+started.Carried)], isLetter) {
		w.counts["continued as new with unread letters"]++
	}
}
