package simulation

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-run/rondo/internal/broker/brokersim"
	"github.com/rondo-run/rondo/internal/check"
	"github.com/rondo-run/rondo/internal/identity"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/sqlite"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/round"
	"github.com/rondo-run/rondo/services/orchestrator"
	"github.com/rondo-run/rondo/services/worker"
)

// world is a system with its clients, on virtual time.
type world struct {
	t       testing.TB
	seed    uint64
	weather weather
	begun   time.Time
	broker  *brokersim.Broker
	store   *sqlite.Store
	hosts   []*host
	jobs    []*job
	plans   []*plan // the schedules
	undone  string  // the work that remained at the end
	over    bool    // nothing is noted any more
	found   []check.Finding
	finish  context.CancelFunc // of everything
	context context.Context
	turns   *turns

	mu       sync.Mutex
	called   bool   // all messages were sent to the drop-in
	noted    uint64 // of all that has happened, in any order
	log      *strings.Builder
	counts   map[string]int
	stands   map[string]stands
	said     []check.Acknowledged // the acknowledgements of clients
	upset    int                  // how often the broker has lost something
	runs     map[string]lifetime  // of schedules
	moments  int                  // how many commits of runs there were
	leapTill [2]atomic.Int64      // until when the clock of an orchestrator is ten years ahead
	storedIn map[string]upheaval  // in which time the first copy of a message was stored, by id
	faults   []string             // faults that were seen during the run
	journal
}

// outcome is the result of a world.
type outcome struct {
	seed   uint64
	faults []string // faults of the services
	noted  uint64
	took   time.Duration // on its own clock
	counts map[string]int
	log    string
	sky    string
}

// runWorld lets a seed happen.
func runWorld(t *testing.T, seed uint64, logged bool) (o outcome) {
	synctest.Test(t, func(t *testing.T) {
		// a bubble begins in 2000, which is before the ids of outbox entries do
		<-time.After(time.Until(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)))
		w := create(t, seed)
		if logged {
			w.log = new(strings.Builder)
		}
		w.run()
		o = outcome{seed: seed, faults: w.verdict(), noted: w.noted, took: time.Since(w.begun), counts: w.counts,
			sky: w.weather.String()}
		if logged {
			o.log = w.log.String()
		}
		if err := w.store.Close(); err != nil {
			t.Error(err)
		}
	})
	return o
}

func create(t *testing.T, seed uint64) *world {
	r := rand.New(rand.NewPCG(seed, 1))
	w := &world{t: t, seed: seed, weather: forecast(r), begun: time.Now(), counts: make(map[string]int),
		storedIn: make(map[string]upheaval),
		stands:   make(map[string]stands), runs: make(map[string]lifetime), journal: newJournal(), turns: newTurns()}
	guests := rand.New(rand.NewPCG(seed, 2))
	w.weather.company(guests)
	visitors := rand.New(rand.NewPCG(seed, 3))
	w.weather.visit(visitors)
	w.weather.strange(rand.New(rand.NewPCG(seed, 4)))
	w.weather.misconfigure(rand.New(rand.NewPCG(seed, 5)))
	w.context, w.finish = context.WithCancel(context.Background())
	w.broker = brokersim.NewBroker(brokersim.Options{
		Partitions: 1 + r.IntN(6), InboxAckWait: 5 * time.Second, TaskAckWait: 30 * time.Second,
		MemberLease:  3 * time.Second,
		SessionLease: 30 * time.Second, Dedupes: w.weather.dedupes,
	})
	w.broker.Skew(w.weather.brokerAhead)
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	w.store, err = sqlite.Open(t.Context(), sqlite.Memory,
		sqlite.Options{Log: quiet, WakeStep: 10 * time.Second, Now: func() time.Time {
			return time.Now().Add(w.weather.storeAhead)
		}})
	must(err)
	for i := range w.weather.orchestratorsAhead {
		w.hosts = append(w.hosts, &host{w: w, name: fmt.Sprint("orchestrator-", i), runs: w.orchestrate(i)})
	}
	for i := range 2 {
		w.hosts = append(w.hosts, &host{w: w, name: fmt.Sprint("worker-", i), runs: w.labour})
	}
	for i := range 6 + r.IntN(10) {
		w.jobs = append(w.jobs, makeJob(r, i, w.weather))
	}
	w.jobs = append(w.jobs, makeGuests(guests, w.weather)...)
	w.jobs = append(w.jobs, makePatients(visitors, w.weather)...)
	w.plans = makePlans(rand.New(rand.NewPCG(seed, 6)), w.begun, &w.weather)
	return w
}

var quiet = slog.New(slog.DiscardHandler)

// run lets everything happen until all work has ended, or it is too late.
func (w *world) run() {
	var all, turns sync.WaitGroup
	over := make(chan struct{})
	turns.Go(func() { w.turns.take(over) })
	for _, h := range w.hosts {
		all.Go(h.live)
	}
	all.Go(w.suffer)
	all.Go(w.pour)
	for _, j := range w.jobs {
		all.Go(func() { w.serve(j) })
	}
	for _, p := range w.plans {
		all.Go(func() { w.follow(p) })
	}
	if w.weather.startsOrSends {
		all.Go(w.callDropIn)
	}
	if w.weather.intruder > 0 {
		all.Go(w.intrude)
	}
	w.await()
	w.finish()
	all.Wait()
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	close(over)
	turns.Wait()
}

// tooLate bounds the time from the calm to the end of all work: recovery finds a lost message
// within 77 seconds, and a script loses one at each step only before the calm.
const tooLate = 20 * time.Minute

// await waits until all work has ended and nothing is left. A check that finds faults is repeated
// after twice as long each time, because late messages may still be in flight: it takes most of the
// CPU time of a world whose faults stay.
func (w *world) await() {
	end := w.begun.Add(w.weather.lasts + tooLate)
	pause, next := time.Second, w.begun
	for w.context.Err() == nil && time.Now().Before(end) {
		<-time.After(time.Second)
		if !w.calm() || time.Now().Before(next) {
			continue
		}
		w.turns.wait("the world", "looks")
		if w.undone = w.left(); w.undone != "" {
			continue
		}
		if w.found = w.check(); len(w.found) == 0 {
			return
		}
		pause = min(2*pause, time.Minute)
		if next = time.Now().Add(pause); next.After(end) { // the last look is at the end
			next = end
		}
	}
}

// calm reports whether the faults are over.
func (w *world) calm() bool { return time.Since(w.begun) > w.weather.lasts }

// note logs an event.
func (w *world) note(who, what string) {
	at := time.Since(w.begun)
	h := fnv.New64a()
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(at))
	h.Write(b[:])
	h.Write([]byte(who))
	h.Write([]byte(what))
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	w.noted += h.Sum64()
	w.counts["steps"]++
	if w.log != nil {
		fmt.Fprintf(w.log, "%14.9f %s: %s\n", at.Seconds(), who, what)
	}
}

func (w *world) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[what]++
}

// happened reports whether there was such a disaster.
func (w *world) happened(what string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts[what] > 0
}

// suffer lets the disasters happen.
func (w *world) suffer() {
	for _, d := range w.weather.disasters {
		go func() {
			select {
			case <-time.After(d.at):
			case <-w.context.Done():
				return
			}
			what := fmt.Sprint(d.what, " ", d.who, " ", d.by)
			w.turns.list("the world", what, func() {
				w.note("the world", what)
				w.count(d.what)
				w.strike(d)
			})
		}()
	}
}

func (w *world) strike(d disaster) {
	h := w.hosts[d.who%len(w.hosts)]
	if d.what != "hiccup" {
		w.upheaval(d.by)
	}
	switch d.what {
	case "kill":
		h.kill("by the world")
	case "restart":
		h.restart()
	case "cut":
		h.cut(time.Now().Add(d.by), true)
	case "stop", "hiccup":
		if r, _, _ := h.now(); r != nil {
			r.stop(time.Now().Add(d.by))
		}
	case "stop in code":
		if r, _, _ := h.now(); r != nil {
			r.stopInCode(d.by)
		}
	case "cutoff":
		h.cut(time.Now().Add(d.by), false)
	case "disconnect":
		for _, h := range w.hosts {
			h.cut(time.Now().Add(2*time.Second), false)
		}
	case "powerloss":
		w.broker.PowerLoss(d.by)
		w.upsets()
	case "forget":
		w.broker.Forget()
		w.upsets()
	case "outage":
		for _, h := range w.hosts[:len(w.weather.orchestratorsAhead)] {
			h.stayAway(time.Now().Add(d.by + time.Second))
			h.kill("by an outage")
		}
		if d.who < len(w.hosts) {
			h.stayAway(w.begun.Add(w.weather.lasts + tooLate))
			h.kill("by an outage, for good")
		}
		time.AfterFunc(d.by, func() {
			w.turns.list("the world", "forgets in an outage", func() {
				w.note("the world", "forgets in an outage")
				w.broker.Forget()
				w.upsets()
			})
		})
	case "partitions":
		c := brokersim.Connect(w.broker, nil)
		_ = c.SetPartitions(w.context, int(d.by))
		_ = c.Close()
	case "deny":
		w.broker.Deny(deniable[d.who], time.Now().Add(d.by))
	case "brokerclock":
		w.broker.Skew(d.by)
	case "away":
		w.stay(d.by)
	case "leap":
		w.leapTill[d.who].Store(time.Now().Add(d.by).UnixNano())
	}
}

// upsets notes that the broker was away, and cuts all connections.
func (w *world) upsets() {
	w.mu.Lock()
	w.upset++
	w.mu.Unlock()
	for _, h := range w.hosts {
		h.cut(time.Now().Add(500*time.Millisecond), false)
	}
}

func (w *world) upsetsSoFar() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.upset
}

// A host is a place where a process runs, again and again.
type host struct {
	w    *world
	name string
	runs func(ctx context.Context, r *road, c *brokersim.Bus) error

	mu          sync.Mutex
	incarnation int
	awayTill    time.Time // no process runs until then
	road        *road
	bus         *brokersim.Bus
	stop        context.CancelFunc
	away        time.Time // no process starts before
}

// live runs one process after the other.
func (h *host) live() {
	var zombies sync.WaitGroup
	defer zombies.Wait()
	// no two processes begin at one moment
	<-time.After(h.w.weather.fateOf(h.w.seed, h.name, "start", 1, false).after)
	for h.w.context.Err() == nil {
		if h.isAway() {
			return
		}
		h.incarnation++
		r := h.w.road(fmt.Sprint(h.name, "/", h.incarnation))
		c := brokersim.Connect(h.w.broker, r)
		ctx, stop := context.WithCancel(h.w.context)
		dead := make(chan struct{})
		r.onDead = func() {
			_ = c.Close()
			stop()
			close(dead)
		}
		h.mu.Lock()
		h.road, h.bus, h.stop = r, c, stop
		h.mu.Unlock()
		ended := make(chan struct{})
		zombies.Go(func() {
			defer close(ended)
			if err := h.runs(ctx, r, c); err != nil && !r.isDead() && h.w.context.Err() == nil {
				h.w.note(r.name, "ends: "+err.Error())
			}
			stop()
			_ = c.Close()
		})
		select {
		case <-dead: // the next incarnation starts while goroutines of this one end
		case <-ended:
		}
		f := h.w.weather.fateOf(h.w.seed, r.name, "rest", 1, false)
		h.mu.Lock()
		away := h.away
		h.mu.Unlock()
		select {
		case <-time.After(max(0, time.Until(away)) + 10*f.after + time.Duration(h.incarnation%4)*4*time.Second):
		case <-h.w.context.Done():
		}
	}
}

func (h *host) now() (*road, *brokersim.Bus, context.CancelFunc) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.road, h.bus, h.stop
}

func (h *host) kill(why string) {
	if r, _, _ := h.now(); r != nil {
		r.die(why)
	}
}

// stayAway has no process start here for some time.
func (h *host) stayAway(till time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.away = till
}

// restart ends the process in order.
func (h *host) restart() {
	if _, _, stop := h.now(); stop != nil {
		stop()
	}
}

// cut takes the connection of the process away; it notices when it is back.
func (h *host) cut(till time.Time, noStore bool) {
	r, c, _ := h.now()
	if r == nil {
		return
	}
	r.cut(till, noStore)
	go func() {
		select {
		case <-time.After(time.Until(till) + time.Nanosecond):
			h.w.turns.list(r.name, "is connected again", c.Back)
		case <-h.w.context.Done():
		}
	}()
}

// decideTakes is how long it takes to decide a turn, on the clock of the world.
const decideTakes = time.Microsecond

func (w *world) orchestrate(i int) func(context.Context, *road, *brokersim.Bus) error {
	return func(ctx context.Context, r *road, c *brokersim.Bus) error {
		config := orchestrator.Config{
			ID: fmt.Sprint("o", i), Logger: quiet, RoundConcurrency: 1,
			Round: round.Config{Remembered: w.weather.remembers},
			Clocks: orchestrator.Clocks{
				Now: func() time.Time {
					// Each turn takes a moment to decide. Otherwise the scheduler of Go would
					// choose which of the turns that are decided at one moment share a commit.
					<-time.After(decideTakes)
					now := time.Now()
					if now.UnixNano() < w.leapTill[i].Load() {
						now = now.AddDate(10, 0, 0)
					}
					return now.Add(w.weather.orchestratorsAhead[i])
				},
				// The watch over code freezes together with the code. The other work of the process
				// is not code, so how much CPU time it uses is not known. A process that is told to
				// end stays frozen.
				CPU: func() (time.Duration, bool) {
					r.Stand(w.context, "watch")
					return 0, false
				},
				Jitter: func(what string, most time.Duration) time.Duration {
					return time.Duration(r.fate("jitter of "+what).chance * float64(most))
				},
			},
		}
		if w.weather.flood > 0 {
			config.Round.FailUnregistered = 40 * time.Second
		}
		code, err := orchestration.NewRegistry(player(r), dropIn.Bind(playDropIn), patient.Bind(playPatient))
		if err != nil {
			return err
		}
		o, err := orchestrator.New(lineOf{c, r}, history.Store(storeOf{w.store, r}), code, config)
		if err != nil {
			return err
		}
		err = o.Run(ctx)
		if identity.IsMismatch(err) {
			w.fault(fmt.Sprint(r.name, " ends: ", err))
		}
		return err
	}
}

func (w *world) labour(ctx context.Context, r *road, c *brokersim.Bus) error {
	name, _, _ := strings.Cut(r.name, "/")
	acts, err := activity.NewRegistry(works(r)...)
	if err != nil {
		return err
	}
	x, err := worker.New(c, acts,
		worker.Config{ID: name, Logger: quiet, ShutdownTimeout: 5 * time.Second, CancelGrace: time.Second})
	if err != nil {
		return err
	}
	err = x.Run(ctx)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
