package simulation

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/broker/brokersim"
	"github.com/rondo-run/rondo/internal/check"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
)

// A job is an instance that clients start, and their messages to it.
type job struct {
	id      string
	script  script
	says    []saying
	steers  events.How // if a client does
	reborn  bool       // its id is used again, after the former instance was deleted if deletes is set
	deletes bool
	again   []saying // messages that are sent again after the broker has forgotten their ids
}

type saying struct {
	at      time.Duration
	message events.Message
}

func makeJob(r *rand.Rand, i int, sky weather) *job {
	j := &job{id: fmt.Sprint("job-", i), script: script{Sum: int64(i), Ops: write(r, 0, sky.posts)}}
	if slices.ContainsFunc(sky.disasters, func(d disaster) bool { return d.what == "partitions" }) {
		inAnyOrder(j.script.Ops)
	}
	at := duration(r, 0, sky.lasts*2/3)
	say := func(id string, c events.Content) {
		j.says = append(j.says, saying{at, events.Message{ID: j.id + id, Instance: j.id, Content: c}})
	}
	say("-start", &events.Start{Orchestration: scripted.Name(), Input: payload(j.script)})
	for k := range letterCount(j.script.Ops) {
		at += duration(r, 0, 4*time.Second)
		if sky.startsOrSends { // to an instance that is there, because it waits for this
			say(fmt.Sprint("-letter-", k+1), &events.Start{
				Orchestration: scripted.Name(), Input: payload(j.script), Conflict: events.RestartFinished,
				Messages: []events.StartMessage{{Mailbox: letters.Name(), Data: payload(k + 1)}},
			})
			continue
		}
		say(fmt.Sprint("-letter-", k+1), &events.MailboxMessage{Mailbox: letters.Name(), Data: payload(k + 1)})
	}
	if r.IntN(6) == 0 && !sky.startsOrSends {
		at += duration(r, 0, 20*time.Second)
		j.steers = []events.How{events.Cancel, events.Terminate, events.Suspend}[r.IntN(3)]
		say("-control", &events.Control{How: j.steers, Reason: "as it was drawn"})
		if j.steers == events.Suspend {
			at += duration(r, 0, 20*time.Second)
			say("-resume", &events.Control{How: events.Resume})
		}
	}
	return j
}

func payload(v any) codec.Payload {
	p, err := codec.JSON{}.Encode(v)
	if err != nil {
		panic(err)
	}
	return p
}

// rested is how long a client waits after the broker has lost messages: until the broker has
// forgotten the ids, too.
const rested = 12 * time.Second

// serve sends the messages for a job until it has ended. When the broker has lost messages, serve
// sends them once more from the beginning.
func (w *world) serve(j *job) {
	c := brokersim.Connect(w.broker, w.road("client of "+j.id))
	defer c.Close()
	var approver sync.WaitGroup
	defer approver.Wait()
	approver.Go(func() { w.approve(j) })
	for {
		upsets := w.upsetsSoFar()
		sent := make(map[string]time.Time) // by message id: it stays the same when the message is sent again
		for i, s := range j.says {
			sent[s.message.ID] = events.Instant(w.begun.Add(s.at))
			s.message.Sent = sent[s.message.ID]
			if w.upsetsSoFar() != upsets || !w.until(s.at) || j.reborn && i > 0 && !w.useAgain(j) ||
				!w.say(c, s.message) {
				break
			}
		}
		for w.upsetsSoFar() == upsets {
			if len(j.again) > 0 && w.until(j.again[0].at) {
				if !w.hasEnded(j) {
					m := j.again[0].message
					m.Sent = sent[m.ID]
					w.say(c, m)
					w.count("letter said again")
				}
				j.again = j.again[1:]
			}
			if w.hasEnded(j) || !w.wait(time.Second) {
				return
			}
			if j.steers == events.Suspend && (w.happened("partitions") || w.happened("brokerclock")) && w.calm() {
				// An earlier message may have been processed last. A broker whose clock was set
				// back may still know the ids after the client has rested, and drop this message.
				w.say(c, events.Message{ID: fmt.Sprint(j.id, "-resume-", time.Since(w.begun)), Instance: j.id,
					Content: &events.Control{How: events.Resume}})
			}
		}
		w.wait(rested)
	}
}

// approve sends each approval that a job waits for, again and again until the job has it.
func (w *world) approve(j *job) {
	c := brokersim.Connect(w.broker, w.road("client who approves "+j.id))
	defer c.Close()
	asked := time.Duration(0)
	for !w.hasEnded(j) && w.wait(time.Second+asked) {
		asked = 0
		for _, n := range w.awaits(j) {
			w.say(c, events.Message{ID: fmt.Sprint(j.id, "-approval-", n), Instance: j.id,
				Sent:    events.Instant(w.begun),
				Content: &events.EventRaised{Name: approval(n).Name(), Data: payload(100 + n)}})
			asked = rested
		}
	}
}

// say publishes a message until it is acknowledged, perhaps twice.
func (w *world) say(c *brokersim.Bus, m events.Message) bool {
	wire, err := events.Encode(c.Prefix(), m)
	if err != nil {
		panic(err)
	}
	times := 1
	f := w.weather.fateOf(w.seed, "client", m.ID, 1, w.calm())
	if f.twice {
		times = 2
	}
	if w.weather.odd {
		beOdd(&wire, f.chance)
		w.count("odd headers")
	}
	for range times {
		from := time.Now()
		if err := c.Publish(w.context, wire); err != nil {
			return false
		}
		w.stored(m.ID, from)
	}
	w.acknowledge(m)
	return true
}

// acknowledge records the acknowledgement of a message.
func (w *world) acknowledge(m events.Message) {
	p, ok := check.AcknowledgedBy(m, time.Now())
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, p)
}

// until waits for a moment of the world, wait for some time. They are false when it is over.
func (w *world) until(at time.Duration) bool { return w.wait(at - time.Since(w.begun)) }

func (w *world) wait(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-w.context.Done():
		return false
	}
}

// stands is the state of an instance, as far as clients need it.
type stands struct {
	ended  bool
	awaits []int64       // events, in their order
	names  map[int64]int // which approval each of them awaits
}

// committed notes the state of instances from commits: clients ask so often that queries of the
// store would take most of the time.
func (w *world) committed(r *road, b history.Batch, result history.Result) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, d := range b.Turns {
		if result.Outcomes[i].Status != history.Committed {
			continue
		}
		w.sends(r, d.Messages)
		s := w.stands[d.Turn.Instance]
		s.ended = d.Turn.Row.Status.Ended()
		for _, x := range d.Turn.Executions {
			w.countStart(x.Events)
			for _, e := range x.Events {
				switch f := e.Fact.(type) {
				case *events.Started:
					s.awaits, s.names = nil, make(map[int64]int)
				case *events.EventAwaited:
					var n int
					if _, err := fmt.Sscanf(f.Name, "approval-%d", &n); err == nil {
						s.awaits = append(s.awaits, e.ID)
						s.names[e.ID] = n
					}
				case *events.EventReceived:
					s.awaits = slices.DeleteFunc(s.awaits, func(id int64) bool { return id == f.Wait })
				default:
				}
			}
		}
		w.stands[d.Turn.Instance] = s
		w.notesRun(d.Turn.Instance, s.ended)
	}
}

func (w *world) hasEnded(j *job) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stands[j.id].ended
}

// awaits lists the approvals that a job waits for.
func (w *world) awaits(j *job) (list []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.stands[j.id]
	for _, id := range s.awaits {
		list = append(list, s.names[id])
	}
	return list
}
