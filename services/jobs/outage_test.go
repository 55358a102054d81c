package jobserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/pkg/events"
	jobserver "github.com/rondo-run/rondo/services/jobs"
)

// stateOf is the state of the queue once all goroutines wait.
func stateOf(t *testing.T, store jobs.Store) jobs.Info {
	t.Helper()
	synctest.Wait()
	i, err := store.Look(t.Context(), "jobs")
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// set changes a broker.
func (b *fakeBroker) set(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

// An outage of the broker costs no job an attempt, however long it lasts, and changes no order.
func TestAnOutageOfTheBrokerKillsNoJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := inMemory(t)
		starting(t, store, jobs.Settings{MaxAttempts: 1}, 1, 2)
		b := newBroker()
		b.away = errors.New("no answer")
		begin(t, store, b, jobserver.StarterConfig{Every: time.Second})
		<-time.After(100 * time.Second)
		if i := stateOf(t, store); i.Dead != 0 || i.Delayed != 2 || i.Totals.Returned < 10 {
			t.Errorf("after an outage, the queue is %+v", i)
		}
		do(t, store, jobs.Push{Jobs: []jobs.NewJob{{Data: json.RawMessage("3")}}})
		b.set(func() { b.away = nil })
		<-time.After(time.Minute)
		if i := stateOf(t, store); !empty(i) || b.inputs() != "1 2 3" {
			t.Errorf("started are %s, and the queue is %+v", b.inputs(), i)
		}
	})
}

// A setting of the broker costs no job an attempt, either. Jobs that it does not prevent proceed,
// and one warning a minute names it.
func TestASettingOfTheBrokerKillsNoJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := inMemory(t)
		starting(t, store, jobs.Settings{MaxAttempts: 1}, 1, 2, 3)
		b := newBroker()
		b.refuses = func(s events.Start) error {
			if string(s.Input) == "2" {
				return fmt.Errorf("%w: max_payload is 1", broker.ErrMisconfigured)
			}
			return nil
		}
		var log bytes.Buffer
		x, end := begin(t, store, b, jobserver.StarterConfig{Every: time.Second,
			Logger: slog.New(slog.NewTextHandler(&log, nil))})
		<-time.After(110 * time.Second)
		do(t, store, jobs.Push{Jobs: []jobs.NewJob{{Data: json.RawMessage("4")}}})
		<-time.After(5 * time.Second)
		if i := stateOf(t, store); i.Dead != 0 || i.Delayed != 1 || i.Totals.Returned < 3 || b.inputs() != "1 3 4" {
			t.Errorf("started are %s, and the queue is %+v", b.inputs(), i)
		}
		b.set(func() { b.refuses = nil })
		<-time.After(time.Minute)
		if i := stateOf(t, store); !empty(i) || x.Counts().Died != 0 {
			t.Errorf("the queue is %+v", i)
		}
		end()
		if n := strings.Count(log.String(), "WARN"); n != 2 || !strings.Contains(log.String(), "max_payload is 1") {
			t.Errorf("%d warnings in 111 s: %s", n, &log)
		}
	})
}

// If a setting of the broker prevents all of a batch, the next one of its queue waits for a while,
// and other queues proceed. A job that may start proceeds behind many that may not.
func TestASettingOfTheBrokerPausesItsQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := inMemory(t)
		starting(t, store, jobs.Settings{}, make([]int, 350)...)
		do(t, store, jobs.Push{Jobs: []jobs.NewJob{{Data: json.RawMessage("7")}}})
		b := newBroker()
		b.refuses = func(s events.Start) error {
			if string(s.Input) == "0" {
				return fmt.Errorf("%w: no permission", broker.ErrMisconfigured)
			}
			return nil
		}
		begin(t, store, b, jobserver.StarterConfig{Every: time.Second})
		for _, o := range []jobs.Operation{
			jobs.Configure{Settings: jobs.Settings{Start: &jobs.Start{Orchestration: "other"}}},
			jobs.Push{Jobs: []jobs.NewJob{{Data: json.RawMessage("9")}}}} {
			if _, err := store.Do(t.Context(), "others", o); err != nil {
				t.Fatal(err)
			}
		}
		<-time.After(2 * time.Second)
		if i := stateOf(t, store); i.Delayed != 100 || i.Totals.Popped != 100 || b.inputs() != "9" {
			t.Errorf("started are %s, and the queue is %+v", b.inputs(), i)
		}
		<-time.After(20 * time.Second)
		if i := stateOf(t, store); i.Delayed != 350 || i.Totals.Popped != 351 || b.inputs() != "9 7" {
			t.Errorf("started are %s, and the queue is %+v", b.inputs(), i)
		}
		b.set(func() { b.refuses = nil })
		<-time.After(time.Minute)
		if i := stateOf(t, store); !empty(i) {
			t.Errorf("the queue is %+v", i)
		}
	})
}

// unheard is a store of which the first answer to an acknowledgement is lost.
type unheard struct {
	jobs.Store
	once sync.Once
}

func (u *unheard) Do(ctx context.Context, name string, operations ...jobs.Operation) ([]jobs.Result, error) {
	results, err := u.Store.Do(ctx, name, operations...)
	for _, o := range operations {
		if _, is := o.(jobs.Acknowledge); is {
			u.once.Do(func() { results, err = nil, errors.New("the answer is lost") })
		}
	}
	return results, err
}

// A lock that was acknowledged without an answer is not said to be over, and its starts count.
func TestAnAcknowledgementWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := inMemory(t)
		starting(t, store, jobs.Settings{}, 1, 2)
		var log bytes.Buffer
		x, end := begin(t, &unheard{Store: store}, newBroker(), jobserver.StarterConfig{Every: time.Second,
			Logger: slog.New(slog.NewTextHandler(&log, nil))})
		<-time.After(10 * time.Second)
		if i := stateOf(t, store); !empty(i) || x.Counts().Started != 2 || x.Counts().Returned != 0 {
			t.Errorf("the queue is %+v, and counted are %+v", i, x.Counts())
		}
		end()
		if strings.Contains(log.String(), "a lock was over") {
			t.Error(log.String())
		}
	})
}
