package integration_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rondo-run/rondo/integration/internal/work"
	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/internal/slowtest"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/services/orchestrator"
)

// TestEverythingTwiceOnTwoOrchestratorsAndTwoWorkers delivers every message twice: to instances, to
// workers, and back. Each instance ends once, with the right result, and its history has each
// answer once.
func TestEverythingTwiceOnTwoOrchestratorsAndTwoWorkers(t *testing.T) {
	n := racetest.Size(5000, 200)
	p := onProcesses(t)
	everyTwice := func(r *role) { r.Twice, r.Config.Round.Patience = true, time.Minute }
	for i := range 2 {
		p.run("orchestrator", fmt.Sprint("orchestrator-", i), everyTwice)
		p.run("worker", fmt.Sprint("worker-", i), everyTwice)
	}
	jobs := mixed("j", n)
	begun := time.Now()
	p.begin(jobs, true)
	p.letGo(jobs)
	p.finished(jobs, patience)
	t.Logf("%d instances, everything twice, on PostgreSQL: %v", n, time.Since(begun).Round(time.Millisecond))
	p.settled()
}

// TestPartitionsMoveWhenAnOrchestratorIsKilled starts 1, 2 and 4 orchestrators, kills one of four,
// and has another one leave in order, while there is work all the time. How soon the partitions
// move is tested in services/orchestrator/ownership, in virtual time.
func TestPartitionsMoveWhenAnOrchestratorIsKilled(t *testing.T) {
	p := onProcesses(t)
	p.run("worker", "worker")
	var running []*process
	add := func() {
		running = append(running, p.run("orchestrator", fmt.Sprint("orchestrator-", len(running))))
	}
	var jobs []work.Job
	wave := func(what string) {
		t.Helper()
		more := mixed(what, racetest.Size(100, 40))
		p.begin(more, false)
		jobs = append(jobs, more...)
	}
	wave("alone")
	add()
	wave("two")
	add()
	wave("four")
	add()
	add()
	p.receivers(4)
	wave("killed")
	running[0].kill()
	killed := time.Now()
	p.allReceived(killed)
	t.Logf("the partitions of the killed one had a new owner after %v", time.Since(killed).Round(time.Millisecond))
	wave("left")
	t.Logf("to end in order took %v", running[1].terminate().Round(time.Millisecond))
	p.letGo(jobs)
	p.finished(jobs, patience)
	p.settled()
}

// receivers waits until each of the partitions has an orchestrator that requests its messages.
func (p *processes) receivers(partitions int) {
	p.t.Helper()
	p.eventually("each partition is received from", func() error {
		for i := range partitions {
			b, err := p.bus.Backlog(p.t.Context(), i)
			if err != nil {
				return err
			}
			if b.Receivers == 0 {
				return fmt.Errorf("partition %d is not", i)
			}
		}
		return nil
	})
}

// allReceived waits until messages sent to each partition are processed.
func (p *processes) allReceived(since time.Time) {
	p.t.Helper()
	for i := range 32 { // with so many instances, each partition gets some
		p.start("steps", fmt.Sprint("probe-", since.UnixNano(), "-", i), i)
	}
	for i := range 32 {
		p.completed(fmt.Sprint("probe-", since.UnixNano(), "-", i), i+3)
	}
}

// TestPartitionCountChangesUnderLoad changes how many partitions there are, up and down, while
// messages travel.
func TestPartitionCountChangesUnderLoad(t *testing.T) {
	t.Parallel()
	s := newCalmSystem(t, openSQLite(t), plays...)
	s.orchestrate()
	s.labour()
	var jobs []work.Job
	for i, n := range []int{8, 3, 1, 6} {
		more := mixed(fmt.Sprint("w", i, "-"), racetest.Size(200, 50))
		half := len(more) / 2
		s.begin(more[:half], false)
		// On a slow machine NATS may answer too late. An operator repeats the command then.
		s.eventually(fmt.Sprint("the number of partitions is set to ", n), func() error {
			return s.bus.SetPartitions(t.Context(), n)
		})
		s.begin(more[half:], false)
		jobs = append(jobs, more...)
	}
	s.letGo(jobs)
	s.finished(jobs, patience)
	s.eventually("the former partitions are gone", func() error {
		p, err := s.bus.Partitions(t.Context())
		if err == nil && (p.Count != 6 || len(p.Draining) > 0) {
			err = fmt.Errorf("there are %+v", p)
		}
		return err
	})
}

// TestLostBroker stops everything while a thousand instances run, deletes all that the broker had,
// and starts again.
func TestLostBroker(t *testing.T) {
	t.Parallel()
	n := racetest.Size(1000, 100)
	s := newSystem(t, openSQLite(t), plays...)
	v := s.orchestrate()
	stopWorker := s.labour()
	jobs := mixed("j", n)
	s.begin(jobs, false)
	// All are begun, some have ended, and most have messages in flight.
	s.eventually("all are begun", func() error {
		if got := len(s.list(rootsOnly)); got < n {
			return fmt.Errorf("%d are", got)
		}
		return nil
	})
	v.kill()
	stopWorker()
	_ = v.wait() // it was killed
	before := len(s.list(running))
	s.loseBroker()
	begun := time.Now()
	s.orchestrate()
	s.labour()
	// Messages from clients that no orchestrator had processed are gone with the broker: a client
	// sends them again, with the same ids.
	for _, j := range jobs {
		s.say(j.Said...)
	}
	s.letGo(jobs)
	s.finished(jobs, patience)
	t.Logf("%d of %d instances were in flight when the broker was lost; all ended %v after "+
		"everything was started again", before, n, time.Since(begun).Round(time.Millisecond))
}

// TestPurgedMessagesHeal removes an activity task and a timer from the broker without the services'
// knowledge.
func TestPurgedMessagesHeal(t *testing.T) {
	onBasics(t, func(t *testing.T, s *system) {
		s.orchestrate()
		s.start("once", "i", "a")
		s.reaches("i", events.KindActivityScheduled)
		work := events.Wire{Subject: "rondo.task._.ping." + s.token("i", 2) + ".i", Purge: true}
		s.eventually("the task is there", func() error { return s.hasPublished(work) })
		var sleeper string
		var timer events.Wire
		for nap := 2500; timer.Subject == ""; nap *= 2 { // a short one may be due before it is seen
			sleeper = fmt.Sprint("t", nap)
			s.start("sleeper", sleeper, nap)
			s.reaches(sleeper, events.KindTimerCreated)
			w := events.Wire{Subject: "rondo.timer-due." + s.token(sleeper, 2) + "." + sleeper, Purge: true,
				NotBefore: time.Now().Add(time.Hour)}
			s.eventually("the timer is there, or was", func() error {
				err := s.hasPublished(w)
				if info, e := s.store.Instance(t.Context(), sleeper); err != nil && e == nil && info.Status.Ended() {
					return nil
				}
				if err == nil {
					timer = w
				}
				return err
			})
		}
		if err := s.bus.Publish(t.Context(), work, timer); err != nil {
			t.Fatal(err)
		}
		d, m, _ := s.take("ping") // NATS redelivers it
		d.Hold.Ack()
		s.say(done(m, "b"))
		s.completed("i", "b")
		s.completed(sleeper, "slept")
	})
}

// hasPublished returns an error if the broker does not have a message.
func (s *system) hasPublished(w events.Wire) error {
	has, err := s.bus.Has(s.t.Context(), w)
	if err == nil && !has {
		err = errors.New("it is not")
	}
	return err
}

// TestShutdownUnderLoad stops an orchestrator in order, again and again, while there is work:
// nothing is lost, and it ends in its time.
func TestShutdownUnderLoad(t *testing.T) {
	t.Parallel()
	s := newSystem(t, openSQLite(t), plays...)
	s.labour()
	jobs := mixed("j", racetest.Size(600, 180))
	portion := len(jobs) / 6
	for i := 0; i < len(jobs); i += portion {
		v := s.orchestrate(func(c *orchestrator.Config) { c.ShutdownTimeout = 2 * patience })
		s.begin(jobs[i:i+portion], false)
		s.journal.await("committed j", len(s.journal.find("committed j"))+10)
		if err := v.end(); err != nil { // end waits for less than the time that the orchestrator has
			t.Errorf("it did not end in order: %v", err)
		}
	}
	s.orchestrate()
	s.letGo(jobs)
	s.finished(jobs, patience)
	s.settled()
}

// TestWhatWasSaidIsSaidAgainAfterALostBroker launches an instance and sends to another one, and
// loses the broker before either has got it.
func TestWhatWasSaidIsSaidAgainAfterALostBroker(t *testing.T) {
	t.Parallel()
	sender := orchestration.Define[string, string]("sender")
	s := newSystem(t, openSQLite(t),
		append([]orchestration.Binding{sender.Bind(func(ctx *orchestration.Context, to string) (string, error) {
			if err := work.Letters.SendFrom(ctx, to, 1); err != nil {
				return "", err
			}
			_, err := work.Mail.Detach(ctx, 1, orchestration.ID("launched"))
			return "", errors.Join(err, work.Letters.SendFrom(ctx, "launched", 5))
		})}, plays...)...)
	v := s.prepare()
	v.broker.onPublish = func(wires []events.Wire) error {
		for _, w := range wires {
			if w.Subject == "rondo.internal_mailbox.letters.reader" {
				v.kill() // this process never publishes the committed messages
				return errCut
			}
		}
		return nil
	}
	v.start()
	s.start("mail", "reader", 1)
	s.reaches("reader", events.KindMailboxRead)
	s.start("sender", "sender", "reader")
	s.ended("sender")
	_ = v.wait()    // it was killed
	s.emptyOutbox() // as if they had been published
	s.loseBroker()
	s.orchestrate()
	s.completed("reader", []int{1})
	s.completed("launched", []int{5})
}

// TestRollingRestart replaces every process, one after the other, while there is work.
func TestRollingRestart(t *testing.T) {
	n := racetest.Size(1000, 150)
	p := onProcesses(t)
	var running []*process
	for i := range 2 {
		running = append(running, p.run("orchestrator", fmt.Sprint("orchestrator-", i)),
			p.run("worker", fmt.Sprint("worker-", i)))
	}
	jobs := mixed("j", n)
	portion := n / (len(running) + 1)
	for i, x := range running {
		p.begin(jobs[i*portion:(i+1)*portion], false)
		kind := "worker"
		if i%2 == 0 {
			kind = "orchestrator"
		}
		p.run(kind, x.id+"-next")
		t.Logf("%s ended within %v", x.id, x.terminate().Round(time.Millisecond))
	}
	p.begin(jobs[len(running)*portion:], false)
	p.letGo(jobs)
	p.finished(jobs, patience)
	p.settled()
	p.outboxIsEmpty()
}

// TestShutdownDuringARoundLeavesNothingRunning: code that runs while its orchestrator ends, and
// returns afterwards, leaves no goroutine behind either.
func TestShutdownDuringARoundLeavesNothingRunning(t *testing.T) {
	slowtest.Room(t)
	before := goleak.IgnoreCurrent()
	release, entered := make(chan struct{}), make(chan struct{})
	slow := orchestration.Define[string, int]("slow").Bind(func(ctx *orchestration.Context, _ string) (int, error) {
		close(entered)
		<-release
		return work.Letters.Receive(ctx)
	})
	s := newSystem(t, openSQLite(t), append([]orchestration.Binding{slow}, basics...)...)
	v := s.orchestrate(func(c *orchestrator.Config) { c.ShutdownTimeout = 100 * time.Millisecond })
	s.start("slow", "i", "")
	s.await(entered, "the code runs")
	if err := v.end(); err == nil {
		t.Error("it ended in order, although code did not come back")
	}
	close(release)
	v.broker.Bus.Close()
	s.bus.Close()
	s.server.Close()
	s.store.Close()
	goleak.VerifyNone(t, before)
}

// TestShutdownLeavesNothingRunning looks for goroutines that outlive their services.
func TestShutdownLeavesNothingRunning(t *testing.T) {
	slowtest.Room(t) // it watches the machine, beyond this test
	before := goleak.IgnoreCurrent()
	s := newSystem(t, openSQLite(t), plays...)
	v := s.orchestrate(func(c *orchestrator.Config) { c.ShutdownTimeout = 10 * time.Second })
	kill := s.labour()
	jobs := mixed("j", 50)
	s.begin(jobs, false)
	s.letGo(jobs)
	s.finished(jobs, patience)
	if err := v.end(); err != nil {
		t.Error(err)
	}
	kill()
	v.broker.Bus.Close()
	s.bus.Close()
	s.server.Close()
	s.store.Close()
	goleak.VerifyNone(t, before)
}
