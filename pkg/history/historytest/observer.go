package historytest

import (
	"context"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/history"
)

// observerTests are about [history.Observer].
var observerTests = []test{
	{"observer/each_method_is_one_operation", observeEach},
	{"observer/errors_are_those_of_the_methods", observeErrors},
}

// observed is one call of an observer.
type observed struct {
	op   string
	took time.Duration
	err  error
}

// observations keeps the calls of an observer.
type observations struct {
	mu  sync.Mutex
	all []observed
}

func (o *observations) add(op string, took time.Duration, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, observed{op, took, err})
}

// take returns the calls since the last take.
func (o *observations) take() []observed {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := o.all
	o.all = nil
	return all
}

// observe opens a store that has an observer.
func observe(t *testing.T, db *Database) (*store, *observations) {
	t.Helper()
	o, clock := &observations{}, NewClock()
	return newStore(t, db.Open(t, Options{Now: clock.Now, Observer: o.add}), db, clock), o
}

// observeEach: each method of the contract is observed once, under its name, also one that needs
// what other methods do. The test finds the methods by reflection, and calls each with its context
// and nothing else. A method that is added to the contract is in the test at once.
func observeEach(t *testing.T, db *Database) {
	s, o := observe(t, db)
	for _, a := range s.begin("running", "ended") {
		if a.ID == "ended" {
			s.commit(a.Complete(`1`))
		}
	}
	for name, call := range methods(s.Store) {
		o.take()
		began := time.Now()
		err := call(s.ctx())
		limit := time.Since(began)
		got := o.take()
		if len(got) != 1 || got[0].op != snake(name) || got[0].err != err || got[0].took < 0 || got[0].took > limit {
			t.Errorf("%s returns %v after %v, and was observed as %+v; its first statement should be "+
				`defer a.Observer.Begin("%s").End(&err)`, name, err, limit, got, snake(name))
		}
	}
}

// observeErrors: an observer gets what the method returns, whatever refuses the call.
func observeErrors(t *testing.T, db *Database) {
	s, o := observe(t, db)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for name, call := range methods(s.Store) {
		o.take()
		err := call(gone)
		if got := o.take(); len(got) != 1 || got[0].op != snake(name) || got[0].err != err {
			t.Errorf("%s returns %v without time, and was observed as %+v", name, err, got)
		}
	}
	_, err := s.Instance(s.ctx(), "absent")
	if got := o.take(); err == nil || len(got) == 0 || got[len(got)-1].err != err {
		t.Errorf("an instance that is absent is %v, and was observed as %+v", err, got)
	}
}

// methods are the methods of the contract except Close and Within, each as a call without
// arguments: zero values, which change nothing that a store has to keep.
func methods(s history.Store) map[string]func(context.Context) error {
	all := make(map[string]func(context.Context) error)
	contract, of := reflect.TypeFor[history.Store](), reflect.ValueOf(s)
	for m := range contract.Methods() {
		if m.Name == "Close" || m.Name == "Within" { // those of its Reader have the same names
			continue
		}
		f := of.MethodByName(m.Name)
		all[m.Name] = func(ctx context.Context) error {
			arguments := []reflect.Value{reflect.ValueOf(ctx)}
			for n := 1; n < m.Type.NumIn(); n++ {
				arguments = append(arguments, reflect.Zero(m.Type.In(n)))
			}
			results := f.Call(arguments)
			err, _ := results[len(results)-1].Interface().(error)
			return err
		}
	}
	return all
}

var word = regexp.MustCompile(`[A-Z][a-z]*`)

// snake is the name of an operation, for that of a method.
func snake(method string) string {
	words := slices.Clone(word.FindAllString(method, -1))
	return strings.ToLower(strings.Join(words, "_"))
}
