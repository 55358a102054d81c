package integration_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/round"
	"github.com/rondo-run/rondo/services/orchestrator"
)

// diary is where code logs to.
type diary struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (d *diary) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.b.Write(p)
}

// pages are the messages of an instance's records, and the executions they are of.
func (d *diary) pages(t *testing.T, instance string) (pages string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	for line := range strings.Lines(d.b.String()) {
		var r struct {
			Msg, Instance, Orchestration, Version string
			Execution                             int64
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if r.Instance == instance {
			pages += fmt.Sprintf("%s of %s %s, execution %d\n", r.Msg, r.Orchestration, r.Version, r.Execution)
		}
	}
	return pages
}

// TestCodeLogsOnce has an instance evicted and loaded again, a message delivered twice, and a round
// repeated after a conflict with another writer.
func TestCodeLogsOnce(t *testing.T) {
	onEach(t, func(t *testing.T, s *system) {
		var ran, interfered, lost atomic.Int32
		next := orchestration.DefineEvent[int]("next")
		book := orchestration.Define[int, int]("book")
		s.deploy(append([]orchestration.Binding{book.Bind(func(ctx *orchestration.Context, n int) (int, error) {
			ran.Add(1)
			ctx.Logger().Info("begins")
			for page := range 3 {
				if _, err := next.Wait(ctx); err != nil {
					return 0, err
				}
				ctx.Logger().Info(fmt.Sprint("page ", page))
			}
			if n == 0 {
				ctx.Logger().Info("continues")
				return book.ContinueAsNew(ctx, 1)
			}
			ctx.Logger().Info("ends")
			return n, nil
		})}, basics...)...)
		said := &diary{}
		v := s.prepare(func(c *orchestrator.Config) {
			c.Memory.MaxInstances, c.CodeLogger = 1, slog.New(slog.NewJSONHandler(said, nil))
		})
		v.broker.onAck = func(d broker.Delivery) bool { // each event of the book is delivered twice
			return !strings.HasSuffix(d.Subject, ".book-1") || !strings.Contains(d.Subject, ".event.") ||
				lost.Add(1)%2 == 0
		}
		v.store.before = func(b history.Batch) error {
			for _, d := range b.Turns {
				if d.Turn.Instance == "book-1" && d.Turn.Expected.LastEvent > 0 && interfered.Add(1)%2 == 1 {
					return s.interfere("book-1", int(interfered.Load()))
				}
			}
			return nil
		}
		v.start()
		s.start("book", "book-1", 0)
		want := "begins of book 1.0.0, execution 1\n"
		for page := range 6 {
			s.start("sleeper", fmt.Sprint("other-", page), 1) // the book is evicted for it
			s.ended(fmt.Sprint("other-", page))
			s.eventually("the book waits for page", func() error {
				if got := said.pages(t, "book-1"); got != want {
					return errors.New(got)
				}
				return nil
			})
			s.say(events.Message{ID: fmt.Sprint("page-", page), Instance: "book-1",
				Content: &events.EventRaised{Name: "next", Data: encode(t, 1)}})
			want += fmt.Sprintf("page %d of book 1.0.0, execution %d\n", page%3, 1+page/3)
			if page == 2 {
				want += "continues of book 1.0.0, execution 1\nbegins of book 1.0.0, execution 2\n"
			}
			s.journal.await("acknowledged rondo.event.next.book-1", page+1)
		}
		s.completed("book-1", 1)
		want += "ends of book 1.0.0, execution 2\n"
		if got := said.pages(t, "book-1"); got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
		if ran.Load() < 6 || interfered.Load() < 6 || lost.Load() < 12 {
			t.Errorf("the code ran %d times, was decided in vain %d times, and %d deliveries came", ran.Load(),
				interfered.Load(), lost.Load())
		}
	})
}

// interfere commits a turn of an instance just before the orchestrator does.
func (s *system) interfere(instance string, n int) error {
	known, err := s.store.Load(s.t.Context(), []string{instance}, func(string, round.Row) bool { return true })
	if err != nil {
		return err
	}
	in := round.New(&round.Config{Code: s.code}, known[0])
	defer in.Evict()
	letter := events.Message{ID: fmt.Sprint("letter-", n), Instance: instance,
		Content: &events.MailboxMessage{Mailbox: "letters", Data: encode(s.t, n)}}
	turn := in.Decide([]round.Delivery{{Message: letter, Attempts: 1}}, time.Now().UTC().Truncate(time.Microsecond))
	r, err := s.store.Commit(s.t.Context(), history.Batch{Turns: []history.Decided{{Turn: &turn}}})
	if err == nil && r.Outcomes[0].Status != history.Committed {
		err = fmt.Errorf("it is %s", r.Outcomes[0].Status)
	}
	return err
}
