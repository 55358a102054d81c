package sqlite_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	codes "modernc.org/sqlite/lib"

	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/historytest"
	"github.com/rondo-run/rondo/pkg/history/sqlite"
	"github.com/rondo-run/rondo/pkg/round"
)

// These tests let things go wrong at every step of the driver.

// bench is a store whose driver fails.
type bench struct {
	*testing.T
	path   string
	driver *faultyDriver
	store  *sqlite.Store // through the driver
	clear  *sqlite.Store // past it; the same as store for a database in memory
	direct *sql.DB       // past it, too
	now    time.Time
}

func newBench(t *testing.T, path string) *bench {
	t.Helper()
	b := &bench{T: t, path: path, driver: newDriver(), now: historytest.Began.Add(2 * time.Minute)}
	options := sqlite.Options{Sync: sqlite.Checkpoints, Now: func() time.Time { return b.now }}
	b.store = open(t, path, options.WithDriver(b.driver.name))
	t.Cleanup(func() { b.driver.set(nil) })
	if path == sqlite.Memory {
		b.clear, b.direct = b.store, sql.OpenDB(b.driver)
	} else {
		b.clear = open(t, path, sqlite.Options{ReadOnly: true})
		var err error
		if b.direct, err = sql.Open("sqlite", path+"?_pragma=busy_timeout(10000)&_pragma=synchronous(0)"); err != nil {
			t.Fatal(err)
		}
	}
	b.direct.SetMaxOpenConns(1)
	t.Cleanup(func() { b.direct.Close() })
	return b
}

// eachPlace runs a test with a file and with a database in memory, whose only connection can never
// be replaced.
func eachPlace(t *testing.T, f func(b *bench)) {
	t.Run("file", func(t *testing.T) { f(newBench(t, filepath.Join(t.TempDir(), "rondo.db"))) })
	if racetest.On {
		return // nothing is concurrent that is not with a file
	}
	t.Run("memory", func(t *testing.T) { f(newBench(t, sqlite.Memory)) })
}

// warm are the steps that are the same whether a connection is new or not.
func warm(s step) bool { return s.kind != opens && s.kind != prepares }

// cold are the others.
func cold(s step) bool { return !warm(s) }

// steps are those of an operation when nothing goes wrong.
func (b *bench) steps(which func(step) bool, f func()) (list []step) {
	b.driver.set(func(s step) fault {
		if which(s) {
			list = append(list, s)
		}
		return fault{}
	})
	f()
	b.driver.set(nil)
	return list
}

// at lets the n-th of the following steps fail, counted from 0. hit is set once that has happened.
func (b *bench) at(n int, which func(step) bool, x fault) (hit *atomic.Bool) {
	hit = new(atomic.Bool)
	b.driver.set(func(s step) fault {
		if which(s) {
			if n--; n == -1 {
				hit.Store(true)
				return x
			}
		}
		return fault{}
	})
	return hit
}

// breakWriter makes the store replace the connection that writes.
func (b *bench) breakWriter() {
	b.Helper()
	b.at(0, func(s step) bool { return s.kind == execs }, fault{err: write})
	if err := b.store.RemoveOutbox(b.Context(),
		[]history.OutboxKey{{ID: 1}}); history.ClassOf(err) != history.Retry {
		b.Fatalf("on a broken connection: %v", err)
	}
	b.driver.set(nil)
}

// namedFault is a fault with a name for messages.
type namedFault struct {
	name string
	fault
}

// faultsAt are the faults to inject at a step. All of them are temporary.
func (b *bench) faultsAt(s step) []namedFault {
	list := []namedFault{
		{"BUSY", fault{err: busy}},
		{"IOERR_WRITE", fault{err: write}},
		{"NOMEM", fault{err: noMem}},
	}
	if warm(s) && s.kind != nexts && !strings.HasPrefix(s.sql, "BEGIN") {
		list = append(list,
			namedFault{"FULL", fault{err: full}},
			namedFault{"FULL, rolled back", fault{err: full, over: true}},
			namedFault{"IOERR_WRITE, rolled back", fault{err: write, over: true}})
	}
	if s.kind == execs {
		list = append(list, namedFault{"IOERR_FSYNC, after it happened", fault{err: fsync, late: true}})
		list = append(list, namedFault{"NOMEM, after it happened", fault{err: noMem, late: true}})
	}
	switch few := racetest.Size(0, 1) > 0; {
	case s.ends() || s.sql == "BEGIN IMMEDIATE" && s.kind == execs && !few || s.sql == "ROLLBACK" && !few:
	case few && s.n%racetest.Short(3, 8) > 0:
		return nil // all of it takes minutes with the race detector, and is done without it
	case few, b.path == sqlite.Memory:
		return list[s.n%len(list):][:1] // the file has had the others
	}
	return list
}

// ---- Contents of the database.

// tables are all tables, with what they are sorted by.
var tables = []struct{ name, order string }{
	{"instances", "instance"}, {"history", "instance, execution, event"}, {"executions", "instance, execution"},
	{"values", "instance, key"},
	{"attributes", "name, value, instance"}, {"outbox", "id"}, {"schedules", "id"},
}

// contents is everything that is stored, but for the ids of outbox entries, which are never the
// same.
func (b *bench) contents() string {
	b.Helper()
	var out strings.Builder
	for _, table := range tables {
		columns := "*"
		if table.name == "outbox" {
			columns = "messages, leased_until"
		}
		rows, err := b.direct.Query("SELECT " + columns + " FROM rondo_" + table.name + " ORDER BY " + table.order)
		if err != nil {
			b.Fatal(err)
		}
		names, err := rows.Columns()
		if err != nil {
			b.Fatal(err)
		}
		values, into := make([]any, len(names)), make([]any, len(names))
		for i := range values {
			into[i] = &values[i]
		}
		for rows.Next() {
			if err := rows.Scan(into...); err != nil {
				b.Fatal(err)
			}
			fmt.Fprintf(&out, "%s:", table.name)
			for _, v := range values {
				fmt.Fprintf(&out, " %s", short(v))
			}
			out.WriteByte('\n')
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			b.Fatal(err)
		}
	}
	return out.String()
}

func short(v any) string {
	data, ok := v.([]byte)
	switch {
	case !ok:
		return fmt.Sprint(v)
	case len(data) < 100:
		return fmt.Sprintf("%q", data)
	}
	return fmt.Sprintf("%d bytes %x", len(data), sha256.Sum256(data))
}

// seen has the store's answers about instances.
func (b *bench) seen(ids []string) string {
	b.Helper()
	var all []any
	add := func(v any, err error) {
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, v)
	}
	ctx := b.Context()
	known, err := b.clear.Load(ctx, ids, nil)
	add(known, err)
	for _, k := range known {
		if k.Unreadable != nil {
			b.Fatal(k.Unreadable)
		}
		for x := int64(1); x <= k.Row.Execution; x++ {
			export, err := history.Export(ctx, b.clear, k.Instance, x)
			add(export, err)
		}
		values, err := b.clear.Values(ctx, k.Instance)
		add(values, err)
	}
	list, err := b.clear.List(ctx, history.Filter{}, history.Page{})
	add(list, err)
	n, err := b.clear.CountOutbox(ctx, 1000)
	add(n, err)
	data, err := json.Marshal(all)
	if err != nil {
		b.Fatal(err)
	}
	return string(data)
}

// wipe empties the database.
func (b *bench) wipe() {
	b.Helper()
	statement := "BEGIN IMMEDIATE"
	for _, table := range tables {
		statement += "; DELETE FROM rondo_" + table.name
	}
	if _, err := b.direct.Exec(statement + "; COMMIT"); err != nil {
		b.Fatal(err)
	}
}

// none checks that a table has no such rows left.
func (b *bench) none(where string) error {
	var n int
	err := b.direct.QueryRow("SELECT count(*) FROM " + where).Scan(&n)
	if err == nil && n > 0 {
		err = fmt.Errorf("%d rows in %s", n, where)
	}
	return err
}

// ---- Commits.

// commits are batches that take the different ways through a commit. Each begins with an empty
// database, and commits the instances that it needs.
var commits = []struct {
	name  string
	begin func(b *bench) history.Batch
}{
	{"everything", everything},
	{"unstorable among others", unstorableAmongOthers},
	{"nothing but outbox entries that were published", keptEntries},
}

// everything is a batch with all that there is.
func everything(b *bench) history.Batch {
	attributes := historytest.WithAttributes(map[string]string{"region": "eu", "size": "large"})
	going, again, ended := historytest.NewActor("going"), historytest.NewActor("again"), historytest.NewActor("ended")
	parent, overtaken := historytest.NewActor("parent"), historytest.NewActor("overtaken")
	kept := commit(b, b.store,
		historytest.Together(going.StartAndCall(), going.Set("changed", "1"), going.Set("removed", "1"),
			going.Set("stays", "1")),
		historytest.Together(again.StartAndCall(attributes), again.Set("k", "1")),
		historytest.Together(ended.Start(attributes), ended.Set("cleared", "1"), ended.Complete(`"first"`)),
		parent.StartAndCall(), overtaken.Start()).Entries
	late := overtaken.Clone()
	commit(b, b.store, overtaken.Note())

	child, fresh := historytest.NewActor("child"), historytest.NewActor("fresh")
	begins := historytest.Together(fresh.StartAndCall(attributes), fresh.Set("k", "1"))
	batch := historytest.Batch(b,
		historytest.Sends(historytest.Together(going.Set("changed", "2"), going.Remove("removed"),
			going.Set("new", "1"), going.SetStatus(`"half"`)), "m-1", "again"),
		historytest.Together(again.ContinueAsNew(), again.Set("k", "2")),
		historytest.Together(ended.Start(historytest.WithMessage("second"),
			historytest.WithAttributes(map[string]string{"region": "us"})), ended.Set("k", "1")),
		late.Say(&events.EventReceived{Wait: 1, Name: "too late"}),
		child.Start(historytest.WithParent(parent)),
		begins)
	last := &batch.Turns[len(batch.Turns)-1]
	last.Messages = append(last.Messages, largeEntries()...)
	batch.Published = append(kept, history.OutboxKey{ID: 17}) // one that is not there
	return batch
}

// largeEntries do not fit into one row of the outbox.
var largeEntries = sync.OnceValue(func() (list []events.Wire) {
	for _, id := range []string{"large-1", "large-2"} {
		data := `"` + strings.Repeat(id, history.MaxOutboxEntry/10) + `"`
		w, err := events.Encode(events.DefaultPrefix, events.Message{ID: id, Instance: "going",
			Content: &events.EventRaised{Name: "go", Data: codec.Payload(data)}})
		if err != nil {
			panic(err)
		}
		list = append(list, w)
	}
	return list
})

// unstorableAmongOthers is a batch that is stored turn by turn, because the database does not take
// one of them.
func unstorableAmongOthers(b *bench) history.Batch {
	going, unfit, fresh := historytest.NewActor("going"), historytest.NewActor("unfit"), historytest.NewActor("fresh")
	kept := commit(b, b.store, going.StartAndCall(), unfit.StartAndCall()).Entries
	_, err := b.direct.Exec("INSERT INTO rondo_history (instance, execution, event, last_event, data) VALUES " +
		"('unfit', 1, 3, 3, x'00')")
	if err != nil {
		b.Fatal(err)
	}
	batch := historytest.Batch(b, fresh.StartAndCall(), historytest.Sends(going.Set("k", "1"), "m-1", "fresh"),
		historytest.Sends(unfit.Note(), "m-2", "fresh"))
	batch.Published = kept
	return batch
}

func keptEntries(b *bench) history.Batch {
	kept := commit(b, b.store, historytest.NewActor("a").StartAndCall()).Entries
	commit(b, b.store, historytest.NewActor("b").StartAndCall())
	return history.Batch{Published: kept}
}

// verdicts are the outcomes of turns.
func verdicts(r history.Result) (list []history.CommitStatus) {
	for _, o := range r.Outcomes {
		list = append(list, o.Status)
	}
	return list
}

// trial lets a batch fail in different ways, and has the wanted result.
type trial struct {
	*bench
	begin        func(b *bench) history.Batch
	ids          []string // of all instances
	before, want string   // the contents
	seen         string   // the store's answers then
	looks        int
	verdicts     []history.CommitStatus
}

// newTrial commits the batch without faults.
func newTrial(b *bench, begin func(b *bench) history.Batch) *trial {
	b.wipe()
	batch := begin(b)
	x := &trial{bench: b, begin: begin, before: b.contents()}
	for _, d := range batch.Turns {
		x.ids = append(x.ids, d.Turn.Instance)
	}
	r, err := b.store.Commit(b.Context(), batch)
	if err != nil {
		b.Fatal(err)
	}
	x.want, x.verdicts, x.seen = b.contents(), verdicts(r), b.seen(x.ids)
	return x
}

// check checks that an answer is true: of the batch, everything is stored or nothing. Then it
// repeats the batch, and everything is stored once.
func (x *trial) check(what string, batch history.Batch, r history.Result, err error) (there bool) {
	x.Helper()
	x.driver.set(nil)
	got := x.contents()
	switch {
	case got == x.want:
		there = true
		if x.looks++; x.looks%8 > 0 { // the contents say it all; it is enough to ask sometimes
			break
		}
		if seen := x.bench.seen(x.ids); seen != x.seen {
			x.Fatalf("%s: the store tells\n%s\nwant\n%s", what, seen, x.seen)
		}
	case got != x.before:
		x.Fatalf("%s (%v): half of it is there:\n%s\nbefore\n%s\nwant\n%s", what, err, got, x.before, x.want)
	}
	switch class := history.ClassOf(err); {
	case err == nil:
		if !there || !slices.Equal(verdicts(r), x.verdicts) {
			x.Fatalf("%s: %v, and it is there: %v", what, verdicts(r), there)
		}
	case class == history.Permanent || class == history.Corrupt:
		x.Fatalf("%s: it passes, and the error says %v: %v", what, class, err)
	case there && class != history.Ambiguous:
		x.Fatalf("%s: it is there, and the error says %v: %v", what, class, err)
	}

	again, repeated := x.store.Commit(x.Context(), batch)
	if repeated != nil {
		x.Fatalf("%s: the same batch again: %v", what, repeated)
	}
	for i, o := range again.Outcomes {
		want := x.verdicts[i]
		if want == history.Committed && there { // it says that the instance is where the turn has taken it
			want = history.Conflict
			if end := batch.Turns[i].Turn.Row.RowVersion(); o.Actual != end {
				x.Fatalf("%s: the same batch again: %q stands at %+v, want %+v", what, batch.Turns[i].Turn.Instance,
					o.Actual, end)
			}
		}
		if o.Status != want {
			x.Fatalf("%s: the same batch again: %q: %v, want %v (%v)", what, batch.Turns[i].Turn.Instance,
				o.Status, want, o.Err)
		}
	}
	if got := x.contents(); got != x.want {
		x.Fatalf("%s: after the same batch again there is\n%s\nwant\n%s", what, got, x.want)
	}
	x.checkKeys(what, batch, append(r.Entries, again.Entries...), err)
	return there
}

// checkKeys checks that the keys that the caller got cover all outbox entries, if it got an answer.
func (x *trial) checkKeys(what string, batch history.Batch, keys []history.OutboxKey, err error) {
	x.Helper()
	if err != nil && history.ClassOf(err) == history.Ambiguous || len(batch.Turns) == 0 {
		return
	}
	if err := x.store.RemoveOutbox(x.Context(), keys); err != nil {
		x.Fatal(err)
	}
	if err := x.none("rondo_outbox"); err != nil {
		x.Fatalf("%s: the keys that the commit gave do not cover all outbox entries: %v", what, err)
	}
}

// TestEveryStepOfACommitMayFail lets each step of each kind of batch fail once, in each way. The
// caller sees no error if another process is the cause, or if the outcome of the transaction is in
// doubt.
func TestEveryStepOfACommitMayFail(t *testing.T) {
	eachPlace(t, func(b *bench) {
		for _, c := range commits {
			newTrial(b, c.begin) // the statements are prepared now
			b.wipe()
			batch := c.begin(b)
			steps := b.steps(warm, func() {
				if _, err := b.store.Commit(b.Context(), batch); err != nil {
					b.Fatal(err)
				}
			})
			x := newTrial(b, c.begin)
			tries := 0
			for n, s := range steps {
				for _, f := range b.faultsAt(s) {
					tries++
					what := fmt.Sprintf("%s: %s at %v", c.name, f.name, s)
					b.wipe()
					batch := c.begin(b)
					hit := b.at(n, warm, f.fault)
					r, err := b.store.Commit(b.Context(), batch)
					if !hit.Load() {
						b.Fatalf("%s: it never came to it", what)
					}
					x.check(what, batch, r, err)
					if s.sql == "ROLLBACK" {
						// the first try of the database's refusing one turn; its connection is
						// replaced if need be
						continue
					}
					if hidden := f.err == busy || s.ends() &&
						(f.err == write || f.err == fsync || f.err == noMem); hidden != (err == nil) {
						b.Fatalf("%s: %v", what, err)
					}
				}
			}
			b.Logf("%s: %d steps, %d tries", c.name, len(steps), tries)
		}
	})
}

// TestANewConnectionMayFail lets the opening of a connection, and the preparing of each statement
// on it, go wrong.
func TestANewConnectionMayFail(t *testing.T) {
	b := newBench(t, filepath.Join(t.TempDir(), "rondo.db"))
	for _, c := range commits {
		x := newTrial(b, c.begin)
		again := func() history.Batch {
			b.wipe()
			batch := c.begin(b)
			b.breakWriter()
			return batch
		}
		batch := again()
		steps := b.steps(cold, func() {
			if _, err := b.store.Commit(b.Context(), batch); err != nil {
				b.Fatal(err)
			}
		})
		for n, s := range steps {
			for _, f := range b.faultsAt(s) {
				what := fmt.Sprintf("%s: %s at %v", c.name, f.name, s)
				batch := again()
				hit := b.at(n, cold, f.fault)
				r, err := b.store.Commit(b.Context(), batch)
				if !hit.Load() {
					b.Fatalf("%s: it never came to it", what)
				}
				x.check(what, batch, r, err)
				if f.err == busy && err != nil {
					b.Fatalf("%s: %v", what, err)
				}
			}
		}
		b.Logf("%s: %d steps", c.name, len(steps))
	}
}

// TestGivingUp lets everything go wrong from a COMMIT on whose end is in doubt, until the store or
// the caller gives up. Then the error is ambiguous, whatever came last.
func TestGivingUp(t *testing.T) {
	never := errors.New("")
	lasts := map[string]error{"BUSY": busy, "FULL": full, "IOERR_FSYNC": fsync,
		"READONLY": sqliteError(codes.SQLITE_READONLY), "CORRUPT": sqliteError(codes.SQLITE_CORRUPT)}
	eachPlace(t, func(b *bench) {
		for _, c := range commits[:2] {
			x := newTrial(b, c.begin)
			for name, last := range lasts {
				for _, late := range []bool{false, true} {
					what := fmt.Sprintf("%s: doubt (it happened: %v), then %s", c.name, late, name)
					b.wipe()
					batch := c.begin(b)
					ctx, cancel := context.WithCancel(b.Context())
					ended, after := never, 0
					b.driver.set(func(s step) fault {
						switch {
						case s.sql == "ROLLBACK":
							return fault{}
						case ended != never:
							if after++; after == 3 && last == busy {
								cancel()
							}
							return fault{err: last}
						case s.ends():
							ended = fsync
							return fault{err: fsync, late: late}
						}
						return fault{}
					})
					r, err := b.store.Commit(ctx, batch)
					cancel()
					if history.ClassOf(err) != history.Ambiguous {
						b.Fatalf("%s: %v: %v", what, history.ClassOf(err), err)
					}
					if there := x.check(what, batch, r, err); there != late {
						b.Fatalf("%s: it is there: %v", what, there)
					}
				}
			}
			// The disk fails at the end of each try.
			for _, late := range []bool{false, true} {
				b.wipe()
				batch := c.begin(b)
				tries := 0
				b.driver.set(func(s step) fault {
					if s.ends() && s.write {
						tries++
						return fault{err: fsync, late: late}
					}
					return fault{}
				})
				r, err := b.store.Commit(b.Context(), batch)
				if history.ClassOf(err) != history.Ambiguous ||
					!strings.Contains(err.Error(), "look at the system's log") || tries != 3 {
					b.Fatalf("%s: a disk that fails at each end: %d tries, %v: %v", c.name, tries,
						history.ClassOf(err), err)
				}
				if there := x.check("a disk that fails at each end", batch, r, err); there != late {
					b.Fatalf("it is there: %v", there)
				}
			}
		}
	})
}

// TestARollbackMayFail lets the ROLLBACK after an error go wrong, too. The connection is replaced,
// and with it goes what it had open.
func TestARollbackMayFail(t *testing.T) {
	b := newBench(t, filepath.Join(t.TempDir(), "rondo.db"))
	x := newTrial(b, everything)
	for name, err := range map[string]error{"BUSY": busy, "NOMEM": noMem, "IOERR_WRITE": write, "FULL": full} {
		b.wipe()
		batch := everything(b)
		b.driver.set(func(s step) fault {
			switch {
			case s.kind == execs && s.sql == "ROLLBACK":
				return fault{err: err}
			case s.kind == execs && strings.HasPrefix(s.sql, "INSERT INTO rondo_history"):
				return fault{err: full, late: true}
			}
			return fault{}
		})
		r, commit := b.store.Commit(b.Context(), batch)
		if history.ClassOf(commit) != history.Retry {
			b.Fatalf("%s: %v", name, commit)
		}
		x.check("a ROLLBACK that fails with "+name, batch, r, commit)
	}
}

// TestStormsOnlySlowDown lets another process be in the way, while a hundred orchestrations run: at
// every second beginning or end of a transaction, or at one in forty of all steps at random.
func TestStormsOnlySlowDown(t *testing.T) {
	chance, n := rand.New(rand.NewPCG(1, 2)), make(map[string]int)
	storms := map[string]func(step) bool{
		"every second transaction": func(s step) bool {
			if s.kind != execs || !s.ends() && s.sql != "BEGIN IMMEDIATE" {
				return false
			}
			n[s.sql]++
			return n[s.sql]%2 == 0
		},
		"one in forty": func(step) bool { return chance.IntN(40) == 0 },
	}
	for name, fails := range storms {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, filepath.Join(t.TempDir(), "rondo.db"))
			failed := 0
			b.driver.set(func(s step) fault {
				if !fails(s) {
					return fault{}
				}
				failed++
				return fault{err: busy}
			})
			var actors []*historytest.Actor
			for i := range 100 {
				actors = append(actors, historytest.NewActor(fmt.Sprintf("i-%03d", i)))
			}
			for part := range slices.Chunk(actors, 20) {
				for _, step := range []func(*historytest.Actor) *round.Turn{
					func(a *historytest.Actor) *round.Turn { return a.StartAndCall() },
					func(a *historytest.Actor) *round.Turn { return a.Set("k", `"v"`) },
					func(a *historytest.Actor) *round.Turn { return a.ContinueAsNew() },
					func(a *historytest.Actor) *round.Turn { return a.Complete("1") },
				} {
					var turns []*round.Turn
					for _, a := range part {
						turns = append(turns, step(a))
					}
					commit(t, b.store, turns...)
				}
			}
			b.driver.set(nil)
			t.Logf("%d faults", failed)
			for _, a := range actors {
				for execution, list := range a.Events {
					x, err := history.Export(t.Context(), b.clear, a.ID, execution)
					if err != nil || len(x.Events) != len(list) {
						t.Fatalf("%q: %d events, want %d: %v", a.ID, len(x.Events), len(list), err)
					}
				}
			}
		})
	}
}
