package identity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/history"
)

// database is a database that several processes use.
type database struct {
	mu  sync.Mutex
	now history.System
}

func (d *database) read() history.System {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.now
}

// nats is a broker that several processes use.
type nats struct{ values *sync.Map }

func newNATS() nats { return nats{new(sync.Map)} }

func (b nats) get(key string) []byte {
	value, _ := b.values.Load(key)
	data, _ := value.([]byte)
	return data
}

var errDied = errors.New("the process has died")

// process is one that uses a database and a broker. It dies before its n-th call that changes
// something, if n is not 0.
type process struct {
	broker.KV // for what this package does not call
	d         *database
	b         nats
	dies      int
	changed   int
	prefix    string       // "rondo" if it is empty
	look      func() error // called at each look at the database; nil: the context is looked at
	lost      []time.Time
	turn      chan struct{} // gets a value for each of its changes; nil: they do not wait
}

func (p *process) Prefix() string { return cmp.Or(p.prefix, "rondo") }

func (p *process) change() error {
	if p.turn != nil {
		<-p.turn
	}
	if p.changed++; p.changed == p.dies {
		return errDied
	}
	if p.dies > 0 && p.changed > p.dies {
		return errDied
	}
	return nil
}

func (p *process) Identity(ctx context.Context) (history.System, error) {
	err := ctx.Err()
	if p.look != nil {
		err = p.look()
	}
	return p.d.read(), err
}

func (p *process) SetIdentity(_ context.Context, from history.System, id string,
	beats int64) (history.System, bool, error) {
	if err := p.change(); err != nil {
		return history.System{}, false, err
	}
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	if from.ID != p.d.now.ID || from.Beats != p.d.now.Beats {
		return p.d.now, false, nil
	}
	p.d.now.ID, p.d.now.Beats, p.d.now.BeatAt = id, beats, time.Now()
	return p.d.now, true, nil
}

func (p *process) Get(_ context.Context, key string) ([]byte, error) { return p.b.get(key), nil }

func (p *process) Put(_ context.Context, key string, value []byte, _ time.Duration) error {
	if err := p.change(); err != nil {
		return err
	}
	p.b.values.Store(key, value)
	return nil
}

func (p *process) Create(_ context.Context, key string, value []byte) (bool, error) {
	if err := p.change(); err != nil {
		return false, err
	}
	_, found := p.b.values.LoadOrStore(key, value)
	return !found, nil
}

func (p *process) Delete(_ context.Context, key string) error {
	if err := p.change(); err != nil {
		return err
	}
	p.b.values.Delete(key)
	return nil
}

// watch makes the watch of a process.
func (p *process) watch(beats bool) *Watch {
	return New(Config{Store: p, Broker: p, Beats: func() bool { return beats }, Log: slog.New(slog.DiscardHandler),
		Lost: func(_ context.Context, since time.Time) error { p.lost = append(p.lost, since); return nil }})
}

// beating runs a process that makes beats until the test ends.
func beating(t *testing.T, d *database, b nats) *process {
	t.Helper()
	p := &process{d: d, b: b}
	w := p.watch(true)
	if err := w.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	go func() {
		if err := w.Run(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	return p
}

// pass lets time pass on the clock of the test, and other processes do their work.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// agreed checks that a database and a broker have the same id and count.
func agreed(t *testing.T, d *database, b nats) {
	t.Helper()
	e, err := Read(t.Context(), &process{d: d, b: b})
	now := d.read()
	if err != nil || e == nil || e.System != now.ID || e.Beats != now.Beats || e.System == "" {
		t.Fatalf("the broker has %+v, %v; the database has %+v", e, err, now)
	}
}

// refuses checks that a process does not join, and that its error says why.
func refuses(t *testing.T, d *database, b nats, says string) {
	t.Helper()
	p := &process{d: d, b: b}
	before := d.read()
	err := p.watch(true).Join(t.Context())
	advice := Advice
	if strings.Contains(says, "restored") {
		advice = adviceRestored
	}
	if !IsMismatch(err) || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), advice) {
		t.Fatalf("joined with %v; want a mismatch that says %q", err, says)
	}
	if p.changed > 0 || d.read().ID != before.ID {
		t.Fatalf("it has changed something")
	}
}

func TestNewOnesBecomeASystem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, b := new(database), newNATS()
		beating(t, d, b)
		agreed(t, d, b)
		beating(t, d, b) // of two that make beats, none disturbs the other
		first := d.read()
		pass(time.Hour + time.Second)
		agreed(t, d, b)
		if now := d.read(); now.ID != first.ID || now.Beats < first.Beats+350 {
			t.Errorf("after an hour, it is %+v; it was %+v", now, first)
		}
	})
}

// TestNewOnesBecomeOneSystem: two processes use one new database with two new brokers, or two new
// databases with one new broker. In each order of their first changes, one of the two joins.
func TestNewOnesBecomeOneSystem(t *testing.T) {
	const changes = 8 // four for each process
	for order := range 1 << changes {
		for _, one := range []string{"database", "broker"} {
			synctest.Test(t, func(t *testing.T) {
				var all []*process
				d, b := new(database), newNATS()
				for range 2 {
					all = append(all, &process{d: d, b: b, turn: make(chan struct{}, 1_000)})
					if one == "database" {
						b = newNATS()
					} else {
						d = new(database)
					}
				}
				joined, ended := make(chan *process, 2), make(chan error, 2)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				for _, p := range all {
					go func() {
						w := p.watch(true)
						err := w.Join(ctx)
						if err == nil {
							joined <- p
							err = w.Run(ctx)
						}
						ended <- err
					}()
				}
				for i := range changes {
					synctest.Wait() // each is about to change something, or has ended
					all[order>>i&1].turn <- struct{}{}
				}
				for _, p := range all {
					for range cap(p.turn) - changes {
						p.turn <- struct{}{}
					}
				}
				if err := <-ended; !IsMismatch(err) {
					t.Errorf("one %s, order %b: one ends with %v", one, order, err)
				}
				pass(time.Minute)
				if len(joined) != 1 || len(ended) > 0 {
					t.Fatalf("one %s, order %b: %d have joined, and %d more have ended", one, order, len(joined),
						len(ended))
				}
				winner := <-joined
				agreed(t, winner.d, winner.b)
			})
		}
	}
}

// TestUsedDatabasesDoNotShareAnEmptyBroker: two databases that were used before get one empty
// broker. Both have waited and are about to store their id, and one joins.
func TestUsedDatabasesDoNotShareAnEmptyBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, ended := newNATS(), make(chan error, 2)
		var all []*process
		for _, id := range []string{"FIRST", "SECOND"} {
			d := &database{now: history.System{ID: id, Beats: 5, BeatAt: time.Now()}}
			p := &process{d: d, b: b, turn: make(chan struct{})}
			all = append(all, p)
			go func() { ended <- p.watch(false).Join(t.Context()) }()
		}
		pass(26 * time.Second)
		all[0].turn <- struct{}{}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		all[1].turn <- struct{}{}
		if err := <-ended; !IsMismatch(err) {
			t.Errorf("the second one ends with %v", err)
		}
		agreed(t, all[0].d, b)
	})
}

// overtaken is a process whose first comparison is overtaken: another one makes the two one system
// after it has read the broker, and before it reads the database.
type overtaken struct {
	*process
	by func()
}

func (p *overtaken) Identity(ctx context.Context) (history.System, error) {
	if by := p.by; by != nil {
		p.by = nil
		by()
	}
	return p.process.Identity(ctx)
}

// TestAnOvertakenFirstStartJoinsAtOnce: it neither waits, nor warns that the two do not agree.
func TestAnOvertakenFirstStartJoinsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, b := new(database), newNATS()
		p := &overtaken{&process{d: d, b: b}, func() { beating(t, d, b) }}
		var logged strings.Builder
		w := New(Config{Store: p, Broker: p, Log: slog.New(slog.NewTextHandler(&logged, nil))})
		began := time.Now()
		if err := w.Join(t.Context()); err != nil {
			t.Fatal(err)
		}
		if logged.Len() > 0 || !time.Now().Equal(began) {
			t.Errorf("it has waited for %v, and logged %s", time.Since(began), logged.String())
		}
	})
}

func TestAnotherDatabaseIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, b, other := new(database), newNATS(), new(database)
		beating(t, d, b)
		refuses(t, other, b, "the database is new, and NATS is in use with another one")
		beating(t, other, newNATS())
		refuses(t, other, b, "they are of different systems")
		if err := Check(t.Context(), &process{d: other, b: b}, &process{d: other, b: b}); !IsMismatch(err) {
			t.Errorf("checked once: %v", err)
		}
		agreed(t, d, b)
	})
}

func TestAnotherBrokerIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, b := new(database), newNATS()
		beating(t, d, b)
		pass(time.Minute + time.Second)
		refuses(t, d, newNATS(), "orchestrators use this database with another NATS")
		agreed(t, d, b)
	})
}

// TestACopyIsRefused: the copy of a database that is in use, however young it is.
func TestACopyIsRefused(t *testing.T) {
	for _, age := range []time.Duration{20 * time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			d, b := new(database), newNATS()
			beating(t, d, b)
			pass(time.Hour + time.Second)
			clone := &database{now: d.read()}
			pass(age)
			says := "orchestrators use NATS with another copy of this database"
			if age > MaxLoss {
				says = "it was restored from a backup, or is a copy"
			}
			refuses(t, clone, b, says)
			agreed(t, d, b)
		})
	}
}

// TestWhatWasLostIsCountedFromTheLastBeat: a broker or a database that has lost its last moments
// is noticed without an operator.
func TestWhatWasLostIsCountedFromTheLastBeat(t *testing.T) {
	for _, running := range []bool{false, true} {
		for _, what := range []string{"the broker lost moments", "the broker lost everything",
			"the database lost moments"} {
			t.Run(fmt.Sprint(what, ", orchestrators run: ", running), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { loses(t, what, running) })
			})
		}
	}
}

func loses(t *testing.T, what string, running bool) {
	d, b := new(database), newNATS()
	p := &process{d: d, b: b}
	w := p.watch(true)
	if err := w.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	beats := func(most time.Duration) {
		ctx, cancel := context.WithTimeout(t.Context(), most)
		defer cancel()
		if err := w.Run(ctx); err != nil {
			t.Fatal(err)
		}
	}
	beats(time.Minute + time.Second)
	former, entry := d.read(), b.get(broker.KeySystem)
	beats(45 * time.Second)
	switch what {
	case "the broker lost moments":
		b.values.Store(broker.KeySystem, entry)
	case "the broker lost everything":
		b.values.Clear()
	default:
		d.mu.Lock()
		d.now = former
		d.mu.Unlock()
	}
	if !running {
		w = p.watch(true)
		if err := w.Join(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	beats(time.Minute)
	agreed(t, d, b)
	want := []time.Time{former.BeatAt}
	if what == "the broker lost everything" {
		want = nil // the recovery finds out since when
	}
	if fmt.Sprint(p.lost) != fmt.Sprint(want) {
		t.Errorf("it looks for what is missing since %v, want %v", p.lost, want)
	}
	if d.read().ID != former.ID {
		t.Error("the system has another id")
	}
}

// TestEachDeathIsSurvived lets the first process die before each of its changes, alone and while
// another one comes.
func TestEachDeathIsSurvived(t *testing.T) {
	for dies := 1; dies <= 6; dies++ {
		synctest.Test(t, func(t *testing.T) {
			d, b := new(database), newNATS()
			p := &process{d: d, b: b, dies: dies}
			ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
			defer cancel()
			w := p.watch(true)
			if w.Join(ctx) == nil {
				_ = w.Run(ctx) // it cannot do anything any more
			}
			if p.changed < dies {
				t.Fatalf("it made %d changes, and not %d", p.changed, dies)
			}
			other := beating(t, d, b)
			pass(2 * time.Minute)
			agreed(t, d, b)
			if len(other.lost) > 1 {
				t.Errorf("it looks for what is missing since %v", other.lost)
			}
		})
	}
}

// TestTheBrokerTakenOverEndsTheOthers: orchestrators that use a database with another broker end
// those of the first one when these come back.
func TestTheBrokerTakenOverEndsTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, b := new(database), newNATS()
		first := &process{d: d, b: b}
		w := first.watch(true)
		if err := w.Join(t.Context()); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute) // it stands still
		beating(t, d, newNATS())
		pass(time.Minute)
		if err := w.Run(t.Context()); !IsMismatch(err) {
			t.Errorf("the first one goes on: %v", err)
		}
	})
}

// TestALostKeyIsWrittenSoon: a new database finds no moment at which the broker seems to be new,
// but for one interval.
func TestALostKeyIsWrittenSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, b := new(database), newNATS()
		beating(t, d, b)
		pass(time.Minute)
		b.values.Clear()
		pass(Every)
		refuses(t, new(database), b, "the database is new, and NATS is in use with another one")
		agreed(t, d, b)
	})
}

// TestNothingIsDecidedInACopy: a copy of a database, taken while nothing ran, agrees with NATS
// until the first beat. From then on, nothing is decided in it, and soon its orchestrators end.
func TestNothingIsDecidedInACopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, b := new(database), newNATS()
		if err := (&process{d: d, b: b}).watch(true).Join(t.Context()); err != nil {
			t.Fatal(err)
		}
		clone := &process{d: &database{now: d.read()}, b: b}
		w := clone.watch(false)
		if err := w.Join(t.Context()); err != nil || w.Decides() != nil {
			t.Fatalf("%v, %v", err, w.Decides())
		}
		beating(t, d, b)
		ended := make(chan error, 1)
		go func() { ended <- w.Run(t.Context()) }()
		pass(2*Every + time.Second)
		if w.Decides() == nil || w.Err() == nil {
			t.Error("it decides")
		}
		pass(2 * Every)
		if err := <-ended; !IsMismatch(err) {
			t.Errorf("it ends with %v", err)
		}
		agreed(t, d, b)
	})
}

// TestAFailingComparisonIsTold: a process that cannot compare for long is not ready.
func TestAFailingComparisonIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, b := new(database), newNATS()
		p := &process{d: d, b: b}
		w := p.watch(true)
		if err := w.Join(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.dies = p.changed + 1
		go func() { _ = w.Run(t.Context()) }() // it ends with the test
		pass(3 * Every)
		if err := w.Err(); err != nil {
			t.Errorf("soon: %v", err)
		}
		pass(3 * Every)
		if err := w.Err(); !errors.Is(err, errDied) {
			t.Errorf("after a while: %v", err)
		}
	})
}

func TestAdopt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, b, other := new(database), newNATS(), new(database)
		p, otherBroker := &process{d: d, b: b}, newNATS()
		w := p.watch(true)
		if err := w.Join(t.Context()); err != nil {
			t.Fatal(err)
		}
		beating(t, other, otherBroker)
		pass(time.Hour)
		b.values.Store(broker.KeyRecovered, []byte("true"))
		adopting := &process{d: &database{now: other.read()}, b: b}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		var inUse *InUse
		if _, err := Adopt(t.Context(), adopting, adopting); !errors.As(err, &inUse) ||
			!strings.Contains(err.Error(), "stop all orchestrators") {
			t.Fatalf("adopted a broker in use: %v", err)
		}
		stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		now, err := Adopt(t.Context(), adopting, adopting)
		if err != nil {
			t.Fatal(err)
		}
		agreed(t, adopting.d, b)
		if was := other.read(); now.ID == was.ID || now.Beats <= 0 || b.get(broker.KeyRecovered) != nil {
			t.Errorf("adopted: %+v, of %+v; the flag is %q", now, was, b.get(broker.KeyRecovered))
		}
		if err := w.Run(t.Context()); !IsMismatch(err) {
			t.Errorf("the former orchestrator goes on: %v", err)
		}
		beating(t, adopting.d, b)
	})
}

// TestAwaitUnused: a database that is in use with another broker, with this one once it has its
// entry again, or not at all.
func TestAwaitUnused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, b, other := new(database), newNATS(), newNATS()
		beating(t, d, b)
		pass(time.Minute)
		err := AwaitUnused(t.Context(), &process{d: d}, &process{b: other})
		if !IsMismatch(err) || !strings.Contains(err.Error(), "orchestrators use this database with another NATS") {
			t.Error(err)
		}
		b.values.Clear()
		if err := AwaitUnused(t.Context(), &process{d: d}, &process{b: b}); err != nil {
			t.Errorf("the entry comes back: %v", err)
		}
		if err := AwaitUnused(t.Context(), &process{d: &database{now: d.read()}}, &process{b: other}); err != nil {
			t.Errorf("not in use: %v", err)
		}
	})
}

func TestAnEntryThatCannotBeRead(t *testing.T) {
	p := &process{d: new(database), b: newNATS()}
	p.b.values.Store(broker.KeySystem, []byte("yes"))
	if err := Check(t.Context(), p, p); err == nil || !strings.Contains(err.Error(), "rondo migrate --adopt") {
		t.Error(err)
	}
	if _, err := Adopt(t.Context(), p, p); err != nil {
		t.Error(err)
	}
	agreed(t, p.d, p.b)
}

// TestAShortLossAfterALongPauseNeedsNoOperator: nothing ran for an hour, or the database was away.
// The database loses the first beat after that, as when a standby takes over.
func TestAShortLossAfterALongPauseNeedsNoOperator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, b := new(database), newNATS()
		p := &process{d: d, b: b}
		w := p.watch(true)
		if err := w.Join(t.Context()); err != nil {
			t.Fatal(err)
		}
		former := d.read()
		pass(time.Hour)
		w = p.watch(true)
		if err := w.Join(t.Context()); err != nil {
			t.Fatal(err)
		}
		pass(5 * time.Second)
		d.mu.Lock()
		d.now = former
		d.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := w.Run(ctx); err != nil {
			t.Fatal(err)
		}
		agreed(t, d, b)
		if len(p.lost) != 1 || !p.lost[0].Equal(former.BeatAt) {
			t.Errorf("it looks for what is missing since %v, want %v", p.lost, former.BeatAt)
		}
	})
}

// silent is a process whose database answers nothing.
type silent struct{ *process }

func (silent) Identity(ctx context.Context) (history.System, error) {
	<-ctx.Done()
	return history.System{}, context.Cause(ctx)
}

// TestASilentDatabase: commands that compare once give up when the database hangs.
func TestASilentDatabase(t *testing.T) {
	for name, compares := range map[string]func(context.Context, history.Systems, Broker) error{
		"check":        Check,
		"await unused": AwaitUnused,
		"adopt": func(ctx context.Context, store history.Systems, b Broker) error {
			_, err := adopt(ctx, store, b)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &process{d: new(database), b: newNATS()}
				err := compares(t.Context(), silent{p}, p)
				if !errors.Is(err, context.DeadlineExceeded) || p.changed > 0 {
					t.Errorf("%v; %d changes", err, p.changed)
				}
			})
		})
	}
}

// TestNothingIsDecidedBeforeTheTwoAgree: a process that waits whether its database is a copy
// decides nothing, and neither does one whose database has turned out to be another one.
func TestNothingIsDecidedBeforeTheTwoAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, b := new(database), newNATS()
		beating(t, d, b)
		clone := &process{d: &database{now: d.read()}, b: b}
		pass(20 * time.Second) // the copy is behind
		w := clone.watch(false)
		joined := make(chan error, 1)
		go func() { joined <- w.Join(t.Context()) }()
		synctest.Wait()
		if w.Decides() == nil {
			t.Error("a copy decides before it has joined")
		}
		if err := <-joined; !IsMismatch(err) || !IsMismatch(w.Decides()) {
			t.Errorf("it has joined with %v, and decides: %v", err, w.Decides())
		}
		within, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := w.Await(within); !errors.Is(err, context.DeadlineExceeded) || !IsMismatch(err) {
			t.Errorf("waiting for it ends with %v", err)
		}
		w = (&process{d: d, b: b}).watch(false)
		waited := make(chan error, 1)
		go func() { waited <- w.Await(t.Context()) }()
		pass(time.Minute)
		if len(waited) > 0 || w.Decides() == nil {
			t.Error("it decides before it has compared")
		}
		if err := w.Join(t.Context()); err != nil || w.Decides() != nil {
			t.Errorf("%v, %v", err, w.Decides())
		}
		if err := <-waited; err != nil {
			t.Error(err)
		}
	})
}
