package query_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/historytest"
	"github.com/rondo-run/rondo/pkg/history/sqlite"
)

// remote is a store of which clients read and remove everything through requests.
type remote struct {
	*sqlite.Store
	*query.Reader
	stop func()
}

// The methods that both parts have are those of the Reader, except those that are not requests.

func (r remote) List(ctx context.Context, f history.Filter, p history.Page) (history.InstanceList, error) {
	return r.Reader.List(ctx, f, p)
}
func (r remote) Count(ctx context.Context, f history.Filter, limit int64) (int64, error) {
	return r.Reader.Count(ctx, f, limit)
}
func (r remote) Instance(ctx context.Context, id string) (history.Info, error) {
	return r.Reader.Instance(ctx, id)
}
func (r remote) Executions(ctx context.Context, id string, after int64, limit int) ([]history.ExecutionInfo, error) {
	return r.Reader.Executions(ctx, id, after, limit)
}
func (r remote) Events(ctx context.Context, id string, x, after int64, limit int) ([]events.Event, error) {
	return r.Reader.Events(ctx, id, x, after, limit)
}
func (r remote) Stats(ctx context.Context, id string) (history.Stats, error) {
	return r.Reader.Stats(ctx, id)
}
func (r remote) Values(ctx context.Context, id string) (map[string]history.Value, error) {
	return r.Reader.Values(ctx, id)
}
func (r remote) Value(ctx context.Context, id, key string) (history.Value, bool, error) {
	return r.Reader.Value(ctx, id, key)
}
func (r remote) CustomStatus(ctx context.Context, id string, known int64) (history.CustomStatus, error) {
	return r.Reader.CustomStatus(ctx, id, known)
}
func (r remote) Tree(ctx context.Context, id string) ([]history.Node, error) {
	return r.Reader.Tree(ctx, id)
}
func (r remote) Metrics(ctx context.Context) (history.Metrics, error) { return r.Reader.Metrics(ctx) }
func (r remote) Delete(ctx context.Context, ids []string, how history.Deletion) (history.DeleteResult, error) {
	if fmt.Sprintf("%T", ctx) == "*historytest.impatient" { // it counts how often the store looks at it
		return r.Store.Delete(ctx, ids, how)
	}
	return r.Reader.Delete(ctx, ids, how)
}
func (r remote) DeleteEnded(ctx context.Context, f history.Filter, p history.Page) (history.DeleteResultPage, error) {
	return r.Reader.DeleteEnded(ctx, f, p)
}
func (r remote) Prune(ctx context.Context, id string, keep history.Keep) (history.DeleteResult, error) {
	return r.Reader.Prune(ctx, id, keep)
}
func (r remote) PruneAll(ctx context.Context, f history.Filter, keep history.Keep,
	p history.Page) (history.DeleteResultPage, error) {
	return r.Reader.PruneAll(ctx, f, keep, p)
}
func (r remote) Tidy(ctx context.Context) (bool, error) { return r.Store.Tidy(ctx) }

func (r remote) Close() error {
	r.stop()
	return r.Store.Close()
}

// others are the sections of the suite that are about writing, or about the store itself.
var others = strings.Fields("atomicity zombies wakes outbox concurrency race_replay capability_filtering load " +
	"instance_locking instance_creation error_handling commit random observer")

func isOther(tb testing.TB) bool { return slices.Contains(others, strings.Split(tb.Name(), "/")[1]) }

// TestReaderIsAStore runs the suite of the store through requests: everything that the store
// returns, and every error, arrives unchanged.
func TestReaderIsAStore(t *testing.T) {
	racetest.TooMuch(t)
	t.Parallel()
	historytest.Run(t, func(tb testing.TB) *historytest.Database {
		path := filepath.Join(tb.TempDir(), "rondo.db")
		return &historytest.Database{
			Shard: func(string) int16 { return 0 },
			Open: func(tb testing.TB, o historytest.Options) history.Store {
				if isOther(tb) {
					tb.Skip("it is about what nobody asks for over the broker")
				}
				s, err := sqlite.Open(context.Background(), path, sqlite.Options{Now: o.Now, Sync: sqlite.Checkpoints})
				if err != nil {
					tb.Fatal(err)
				}
				b := newBroker()
				stop, err := query.Answer(b, s, query.Options{})
				if err != nil {
					tb.Fatal(err)
				}
				r := remote{s, query.NewPatientReader(b), sync.OnceFunc(stop)}
				tb.Cleanup(func() { _ = r.Close() })
				return r
			},
			SecondsAfter: func(from time.Time, column string) string {
				return fmt.Sprintf("%d + %s * 1000000", from.UnixMicro(), column)
			},
			Exec: func(tb testing.TB, statement string, args ...any) {
				if isOther(tb) {
					return
				}
				statement = strings.ReplaceAll(statement, "DELETE FROM rondo_marks", "SELECT 1") // there are none here
				db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(10000)")
				if err != nil {
					tb.Fatal(err)
				}
				defer db.Close()
				if _, err := db.Exec(statement, args...); err != nil {
					tb.Fatalf("%s: %v", statement, err)
				}
			},
		}
	})
}

// fakeBroker is a broker in memory.
type fakeBroker struct {
	mu        sync.Mutex
	answers   map[string]func(context.Context, []byte) ([]byte, error)
	listeners map[*listener]bool
	all       map[string]func(context.Context, []byte) ([]byte, error)
	asked     map[string]int
	announced [][]string
	fail      error
}

type listener struct {
	words []string
	heard func([]string, events.Header, []byte)
}

func newBroker() *fakeBroker {
	return &fakeBroker{answers: make(map[string]func(context.Context, []byte) ([]byte, error)),
		all:       make(map[string]func(context.Context, []byte) ([]byte, error)),
		listeners: make(map[*listener]bool), asked: make(map[string]int)}
}

func (b *fakeBroker) Request(ctx context.Context, method string, question []byte) ([]byte, error) {
	b.mu.Lock()
	answer := b.answers[method]
	b.asked[method]++
	b.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if answer == nil {
		return nil, fmt.Errorf("request %s: %w", method, broker.ErrNoResponders)
	}
	return answer(ctx, question)
}

func (b *fakeBroker) Handle(method string, answer func(context.Context, []byte) ([]byte, error)) (func(), error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail != nil {
		return nil, b.fail
	}
	b.answers[method] = answer
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.answers, method)
	}, nil
}

func (b *fakeBroker) Discover(ctx context.Context, method string, question []byte, _ time.Duration) ([][]byte, error) {
	b.mu.Lock()
	answer := b.all[method]
	b.mu.Unlock()
	if answer == nil {
		return nil, broker.ErrNoResponders
	}
	data, err := answer(ctx, question)
	return [][]byte{data}, err
}

func (b *fakeBroker) HandleDiscovery(method string,
	answer func(context.Context, []byte) ([]byte, error)) (func(), error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail != nil {
		return nil, b.fail
	}
	b.all[method] = answer
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.all, method)
	}, nil
}

func (b *fakeBroker) Notify(words []string, h events.Header, body []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail != nil {
		return b.fail
	}
	b.announced = append(b.announced, words)
	for l := range b.listeners {
		fits := len(l.words) == len(words)
		for i, w := range l.words {
			fits = fits && (w == broker.Any || w == words[i])
		}
		if fits {
			l.heard(words, h, body)
		}
	}
	return nil
}

func (b *fakeBroker) Listen(_ context.Context, words []string,
	heard func([]string, events.Header, []byte)) (func(), error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail != nil {
		return nil, b.fail
	}
	l := &listener{words, heard}
	b.listeners[l] = true
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.listeners, l)
	}, nil
}
