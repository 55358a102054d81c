package simulation

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/round"
)

// A patient is an instance that waits for mailbox messages with deadlines, again and again until it
// has all of them. Which of them come in time depends on the world, and the world knows it: what
// the broker has stored before a deadline must be read before the deadline passes, and what it has
// stored later must not.

// patience is the input of a patient.
type patience struct {
	Letters int
	Within  time.Duration
}

var (
	patient = orchestration.Define[patience, int64]("patient")
	prompt  = orchestration.DefineMailbox[int64]("prompt")
)

func playPatient(ctx *orchestration.Context, p patience) (sum int64, err error) {
	for read := 0; read < p.Letters; {
		n, err := prompt.ReceiveWithin(ctx, p.Within)
		switch {
		case errors.Is(err, orchestration.ErrTimeout):
		case err != nil:
			return 0, err
		default:
			sum += n
			read++
		}
	}
	return sum, nil
}

// company of patients, and the time for which no orchestrator is there.
func (w *weather) visit(r *rand.Rand) {
	if r.IntN(3) > 0 {
		return
	}
	w.patients = 1 + r.IntN(3)
	if r.IntN(3) == 0 {
		w.disasters = append(w.disasters, disaster{duration(r, 0, w.lasts), "leap", r.IntN(2),
			duration(r, 100*time.Millisecond, 25*time.Second)})
	}
	w.disasters = append(w.disasters, disaster{duration(r, time.Second, w.lasts*2/3), "away", 0,
		duration(r, 2*time.Second, 40*time.Second)})
}

// makePatients makes them, with their messages. Many messages come while no orchestrator is there.
func makePatients(r *rand.Rand, sky weather) (jobs []*job) {
	var away disaster
	for _, d := range sky.disasters {
		if d.what == "away" {
			away = d
		}
	}
	for i := range sky.patients {
		j := &job{id: fmt.Sprint("patient-", i)}
		p := patience{3 + r.IntN(8), duration(r, 500*time.Millisecond, 12*time.Second)}
		j.says = append(j.says, saying{duration(r, 0, max(away.at, time.Second)), events.Message{ID: j.id + "-start",
			Instance: j.id, Content: &events.Start{Orchestration: patient.Name(), Input: payload(p)}}})
		from := j.says[0].at
		for range p.Letters {
			at := from + duration(r, 0, sky.lasts)
			if r.IntN(2) == 0 {
				at = max(from, away.at+duration(r, 0, away.by+time.Second))
			}
			j.says = append(j.says, saying{at: at})
		}
		slices.SortFunc(j.says[1:], func(a, b saying) int { return cmp.Compare(a.at, b.at) })
		for k := range p.Letters {
			j.says[k+1].message = events.Message{ID: fmt.Sprint(j.id, "-prompt-", k+1), Instance: j.id,
				Content: &events.MailboxMessage{Mailbox: prompt.Name(), Data: payload(k + 1)}}
		}
		jobs = append(jobs, j)
	}
	return jobs
}

// stay keeps the orchestrators away for some time, from now on.
func (w *world) stay(away time.Duration) {
	for _, h := range w.hosts[:len(w.weather.orchestratorsAhead)] {
		h.mu.Lock()
		h.awayTill = time.Now().Add(away)
		h.mu.Unlock()
		h.restart()
	}
}

// isAway waits until the processes of the host may run.
func (h *host) isAway() bool {
	h.mu.Lock()
	till := h.awayTill
	h.mu.Unlock()
	return !h.w.wait(time.Until(till))
}

// stored notes when the first copy of a message was published: it was stored in this time, on the
// broker's clock.
func (w *world) stored(id string, from time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.storedIn[id]; !known {
		w.storedIn[id] = upheaval{from, time.Now()}
	}
}

// judgeInTime checks for all messages and timers of an execution that they were taken in the order
// of their moments.
func (w *world) judgeInTime(x events.Export) error {
	if w.upset > 0 || w.counts["partitions"] > 0 || w.counts["stop in code"] > 0 {
		return nil // messages were lost, or came in another order, or were returned
	}
	apart := w.apart()
	due, fired := make(map[int64]time.Time), make(map[int64]time.Time)
	for _, e := range x.Events {
		var message string
		switch f := e.Fact.(type) {
		case *events.TimerCreated:
			due[e.ID] = f.FireAt
			continue
		case *events.TimerFired:
			fired[f.Timer] = due[f.Timer]
			delete(due, f.Timer)
			continue
		case *events.Dropped:
			for _, id := range f.Schedules {
				delete(due, id)
			}
			continue
		case *events.EventReceived:
			message = f.Message
		case *events.MessageReceived:
			message = f.Message
		default:
			continue
		}
		in, known := w.storedIn[message]
		if !known {
			continue
		}
		for timer, at := range fired {
			if in.till.Before(at.Add(-apart)) {
				return fmt.Errorf("%s: %s was stored after %v, and came later than timer %d, which was due after %v",
					x.Instance, message, in.till.Sub(w.begun), timer, at.Sub(w.begun))
			}
		}
		for timer, at := range due {
			if in.from.After(at.Add(apart)) {
				return fmt.Errorf("%s: %s was stored after %v, and came earlier than timer %d, which was due after %v",
					x.Instance, message, in.from.Sub(w.begun), timer, at.Sub(w.begun))
			}
		}
		if len(fired) > 0 {
			w.counts["messages taken after a timer"]++
		}
		w.counts["messages in time"]++
	}
	return nil
}

// apart is how far two clocks of the world may be apart.
func (w *world) apart() time.Duration {
	ahead := []time.Duration{0, w.weather.brokerAhead}
	ahead = append(ahead, w.weather.orchestratorsAhead[:]...)
	for _, d := range w.weather.disasters {
		if d.what == "brokerclock" {
			ahead = append(ahead, d.by)
		}
	}
	return slices.Max(ahead) - slices.Min(ahead)
}

// judgePatient judges the result of a patient.
func (w *world) judgePatient(info history.Info) error {
	x, err := history.Export(w.context, w.store, info.Instance, 0)
	if err != nil {
		return err
	}
	started := x.Events[0].Fact.(*events.Started)
	var p patience
	if err := (codec.JSON{}).Decode(started.Input, &p); err != nil {
		return err
	}
	want := string(payload(p.Letters * (p.Letters + 1) / 2))
	if info.Status != round.Completed || string(info.Output) != want {
		return fmt.Errorf("%s is %s with %s, want %s", info.Instance, info.Status, info.Output, want)
	}
	return w.judgeInTime(x)
}

func isPatient(instance string) bool { return strings.HasPrefix(instance, "patient-") }
