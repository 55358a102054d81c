package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/rondo-run/rondo/pkg/app"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// tables are the data of a database. One mutex makes each operation a transaction.
type tables struct {
	mu        sync.Mutex
	instances map[string]*instance
	outbox    map[history.OutboxKey]*entry
	schedules map[string]history.Schedule
	lastID    int64 // of an outbox entry
	system    history.System
}

// instance is the row of an instance with everything that belongs to it.
type instance struct {
	row     round.Row
	created time.Time // when the incarnation began
	former  map[int64]round.Row
	events  histories
	values  map[string]history.Value
}

// histories are the encoded events of executions.
type histories map[int64][][]byte

// entry is an outbox entry.
type entry struct {
	packed []byte
	leased time.Time // until when
}

func newTables() *tables {
	return &tables{instances: make(map[string]*instance), outbox: make(map[history.OutboxKey]*entry),
		schedules: make(map[string]history.Schedule)}
}

// session is a store's access to the tables.
type session struct {
	*tables
	now     func() time.Time
	observe history.Observer
	bytes   int // bounds a page; 0 is no bound
}

// call makes a transaction of f: it locks the tables, unless the context has ended. It is the only
// place that knows about locks, contexts and observers.
func call[T any](ctx context.Context, s *session, op string, f func() (T, error)) (result T, err error) {
	began := time.Now()
	defer func() {
		if s.observe != nil {
			s.observe(op, time.Since(began), err)
		}
	}()
	if err := ctx.Err(); err != nil {
		return result, &history.Error{Class: history.Retry, Op: op, Err: err}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return f()
}

// find finds an instance that is not a tombstone.
func (t *tables) find(id string) (*instance, error) {
	if in := t.instances[id]; in.exists() {
		return in, nil
	}
	return nil, fmt.Errorf("instance %q: %w", id, history.ErrNoInstance)
}

// exists reports whether it is there, and not a tombstone.
func (in *instance) exists() bool { return in != nil && in.row.Status != "" }

// Store implements [history.Store] in the memory of the process. It is split as the contract is.
type Store struct {
	writer
	reader
	remover
	scheduler
	s *session
}

var _ history.Store = (*Store)(nil)

func newStore(t *tables, now func() time.Time, observe history.Observer) *Store {
	s := &session{tables: t, now: now, observe: observe}
	return &Store{writer{s}, reader{s}, remover{s}, scheduler{s}, s}
}

// Ping implements [history.Store].
func (s *Store) Ping(ctx context.Context) error {
	_, err := call(ctx, s.s, "ping", func() (any, error) { return nil, nil })
	return err
}

// Clock implements [history.Store].
func (s *Store) Clock(ctx context.Context) (time.Time, error) {
	return call(ctx, s.s, "clock", func() (time.Time, error) { return s.s.now(), nil })
}

// Close implements [io.Closer]. The tables stay, for the next store that opens them.
func (*Store) Close() error { return nil }

// databases are the tables of each name, until the process ends.
var databases sync.Map

var errNoName = errors.New("the address has no name; write memory:NAME")

// open opens the database of a URL like memory:orders.
func open(_ context.Context, url string, o app.StoreOptions) (history.Store, error) {
	name := strings.TrimPrefix(url, "memory:")
	if name == "" {
		return nil, &history.Error{Class: history.Permanent, Op: "open", Err: errNoName}
	}
	t, _ := databases.LoadOrStore(name, newTables())
	return newStore(t.(*tables), func() time.Time { return time.Now().UTC() }, o.Observer), nil
}
