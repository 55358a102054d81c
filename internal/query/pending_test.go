package query_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/historytest"
)

// shelf has the starts that a broker stores. Its sequence numbers are their indexes.
type shelf struct {
	starts []broker.PendingStart
	err    error
	pages  int

	withdrawn func() // called after a withdrawal
}

func (s *shelf) PendingStarts(_ context.Context, f broker.StartFilter, from broker.StartCursor,
	limit int) (page broker.StartPage, err error) {
	s.pages++
	for i := int(from.Sequence); i < len(s.starts); i++ {
		page.More = len(page.Starts) == limit
		if page.Next = (broker.StartCursor{Sequence: uint64(i)}); page.More {
			break
		}
		words := strings.Split(s.starts[i].Subject, ".")
		if f.Name != "" && words[2] != f.Name || f.Instance != "" && words[3] != f.Instance {
			continue
		}
		page.Starts = append(page.Starts, s.starts[i])
	}
	return page, s.err
}

// add stores a start of an instance.
func (s *shelf) add(verb, name, instance string, change ...func(*broker.PendingStart)) {
	n := len(s.starts)
	id := fmt.Sprint("m-", n)
	if verb != "start" {
		id = fmt.Sprint("start/1-2/l/", n)
	}
	p := broker.PendingStart{Key: fmt.Sprint(n), Delivery: broker.Delivery{
		Subject: "rondo." + verb + "." + name + "." + events.EncodeToken(instance), Sequence: uint64(n),
		StoredAt: noon, Header: events.Header{events.HeaderMsgID: {id}}}}
	for _, c := range change {
		c(&p)
	}
	s.starts = append(s.starts, p)
}

var noon = time.Date(2027, 1, 2, 12, 0, 0, 0, time.UTC)

func at(now time.Time) func() time.Time { return func() time.Time { return now } }

// TestPendingByHand: the answer has all that tells why a start waits, and no message that is none.
func TestPendingByHand(t *testing.T) {
	var b shelf
	s := newSystem(t, query.Options{Pending: &b, Now: at(noon.Add(time.Minute))})
	delay := func(d time.Duration) func(*broker.PendingStart) {
		return func(p *broker.PendingStart) { p.NotBefore, p.AcceptedAt = noon.Add(d), noon.Add(-time.Hour) }
	}
	with := func(name, value string) func(*broker.PendingStart) {
		return func(p *broker.PendingStart) { p.Header[name] = []string{value} }
	}
	same := func(id string) func(*broker.PendingStart) { return with(events.HeaderMsgID, id) }
	b.add("start", "fulfil", "order-7", with(events.HeaderVersion, "1.0.0"))
	b.add("start", "fulfil", "later", delay(time.Hour))
	b.starts = append(b.starts, b.starts[1]) // it has moved, and is found twice
	b.add("start", "fulfil", "due", delay(time.Second))
	b.add("internal_start", "ship", "order-7~1", with(events.HeaderParent, "1-2.l.order-7"))
	b.add("start", "report", "nightly", with("Rondo-Each", "true"))
	b.add("start", "fulfil", "claims-to-be-a-child", with(events.HeaderParent, "1-2.l.order-7"))
	// NATS had lost them, and their senders have published them again: one has moved since.
	b.add("internal_start", "ship", "order-7~1", with(events.HeaderParent, "1-2.l.order-7"), same("start/1-2/l/4"))
	b.add("start", "fulfil", "later", delay(time.Hour), same("m-1"))
	b.add("start", "fulfil", "broken", with(events.HeaderConflict, "perhaps"))
	b.add("start", "fulfil", "acknowledgement", func(p *broker.PendingStart) {
		p.Header, p.Body = nil, []byte(`{"stream":"RONDO","seq":7}`)
	})
	got, err := s.ask(t, query.MethodPending, "")
	want := `{"starts":[` + strings.Join([]string{
		`{"instance":"order-7","name":"fulfil","version":"1.0.0","stored_at":"2027-01-02T12:00:00Z","why":"waiting"}`,
		`{"instance":"later","name":"fulfil","stored_at":"2027-01-02T11:00:00Z","why":"scheduled","due":"2027-01-02T13:00:00Z"}`,
		`{"instance":"due","name":"fulfil","stored_at":"2027-01-02T11:00:00Z","why":"waiting"}`,
		`{"instance":"order-7~1","name":"ship","parent":"order-7","stored_at":"2027-01-02T12:00:00Z","why":"waiting"}`,
		`{"instance":"nightly","name":"report","stored_at":"2027-01-02T12:00:00Z","why":"waiting"}`,
		`{"instance":"claims-to-be-a-child","name":"fulfil","stored_at":"2027-01-02T12:00:00Z","why":"waiting"}`,
	}, ",") + `]}`
	if err != nil || got != want {
		t.Errorf("got %s, %v\nwant %s", got, err, want)
	}
	for question, want := range map[string]string{
		`{"instance":"order-7"}`:                              "order-7",
		`{"filter":{"name":"ship"}}`:                          "order-7~1",
		`{"filter":{"name":"fulfil","id_prefix":"order"}}`:    "order-7",
		`{"filter":{"id_prefix":"order-7~"},"limit":1000000}`: "order-7~1",
	} {
		got, err := s.ask(t, query.MethodPending, question)
		if err != nil || !strings.HasPrefix(got, `{"starts":[{"instance":"`+want+`"`) || strings.Contains(got, "}},{") {
			t.Errorf("%s: got %s, %v", question, got, err)
		}
	}
}

// TestPendingPages: the reader gets each start once, also if the filter leaves few of each page.
func TestPendingPages(t *testing.T) {
	var b shelf
	s := newSystem(t, query.Options{Pending: &b})
	const n = 2500
	for i := range n {
		b.add("start", "o", fmt.Sprintf("%04d", i))
	}
	for _, c := range []struct {
		f           query.PendingFilter
		limit, want int
	}{
		{query.PendingFilter{}, 30, n}, {query.PendingFilter{}, 0, n}, {query.PendingFilter{}, 1000, n},
		{query.PendingFilter{IDPrefix: "24"}, 30, 100}, {query.PendingFilter{IDPrefix: "0001"}, 1000, 1},
		{query.PendingFilter{Instance: "1234"}, 1, 1}, {query.PendingFilter{Name: "p"}, 10, 0},
		{query.PendingFilter{Name: "\xff"}, 10, 0},
	} {
		var got []string
		for page := (history.Page{Limit: c.limit}); ; {
			b.pages = 0
			list, err := s.reader.Pending(t.Context(), c.f, page)
			must(t, err)
			if len(list.Starts) > page.Size() || b.pages > 10 {
				t.Errorf("%+v: a page of %d starts, from %d reads", c, len(list.Starts), b.pages)
			}
			for _, p := range list.Starts {
				if len(got) > 0 && p.Instance <= got[len(got)-1] {
					t.Fatalf("%+v: %s after %s", c, p.Instance, got[len(got)-1])
				}
				got = append(got, p.Instance)
			}
			if page.Cursor = list.Next; page.Cursor == "" {
				break
			}
		}
		if len(got) != c.want {
			t.Errorf("%+v: got %d starts, want %d", c, len(got), c.want)
		}
	}
}

// TestPendingErrors: filters that fit instances only, wrong cursors, and a broker that fails.
func TestPendingErrors(t *testing.T) {
	var b shelf
	s := newSystem(t, query.Options{Pending: &b})
	for question, want := range map[string]string{
		`{"filter":{"version":"1"}}`:           "has name and id_prefix only",
		`{"filter":{"statuses":["running"]}}`:  "has name and id_prefix only",
		`{"filter":{"attributes":{"a":"b"}}}`:  "has name and id_prefix only",
		`{"filter":{"names":"a"}}`:             "unknown field",
		`{"cursor":"7"}`:                       "no cursor",
		`{"cursor":"-1.7"}`:                    "no cursor",
		`{"cursor":"1.7.8"}`:                   "no cursor",
		`{"cursor":"1.99999999999999999999"}`:  "no cursor",
		`{"cursor":"99999999999999999999.10"}`: "no cursor",
	} {
		if _, err := s.ask(t, query.MethodPending, question); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", question, err, want)
		}
	}
	b.err = errors.New("NATS does not answer")
	_, err := s.reader.Pending(t.Context(), query.PendingFilter{}, history.Page{})
	if history.ClassOf(err) != history.Retry || !strings.Contains(err.Error(), "NATS does not answer") {
		t.Errorf("got %v of class %v", err, history.ClassOf(err))
	}
	_, err = newSystem(t, query.Options{}).reader.Pending(t.Context(), query.PendingFilter{}, history.Page{})
	if !errors.Is(err, broker.ErrNoResponders) {
		t.Errorf("without a broker that lists them: got %v", err)
	}
}

func (s *shelf) WithdrawStart(_ context.Context, p broker.PendingStart) error {
	if s.err == nil {
		s.starts = slices.DeleteFunc(s.starts, func(x broker.PendingStart) bool { return x.Key == p.Key })
	}
	if s.withdrawn != nil {
		s.withdrawn()
	}
	return s.err
}

// TestWithdraw: it removes the starts of an instance that the database does not have, and tells if
// an orchestrator was faster.
func TestWithdraw(t *testing.T) {
	var b shelf
	s := newSystem(t, query.Options{Pending: &b})
	withdraws := func(instance string, want int, wantErr error, wantLeft int) {
		t.Helper()
		w, err := s.reader.Withdraw(t.Context(), instance)
		if !errors.Is(err, wantErr) || w.Starts != want || len(b.starts) != wantLeft {
			t.Errorf("%s: withdrawn %d, %v, left %d", instance, w.Starts, err, len(b.starts))
		}
	}
	parent := func(p *broker.PendingStart) { p.Header[events.HeaderParent] = []string{"1-2.l.parent"} }
	b.add("start", "o", "i")
	b.add("start", "p", "i")
	b.starts = append(b.starts, b.starts[0]) // it has moved, and is found twice
	b.add("start", "o", "i", func(p *broker.PendingStart) { p.Header[events.HeaderMsgID] = []string{"m-0"} })
	b.add("start", "o", "i-2")
	b.add("internal_start", "o", "child", parent)
	b.add("internal_start", "o", "detached")
	b.add("start", "o", "there")
	a := historytest.NewActor("there")
	s.commit(t, a.Start())

	withdraws("i", 2, nil, 4)
	withdraws("i", 0, history.ErrNoInstance, 4)
	withdraws("child", 0, query.ErrPendingChild, 4)
	withdraws("there", 0, query.ErrStarted, 4)
	withdraws("detached", 1, nil, 3)
	b.withdrawn = func() { s.commit(t, historytest.NewActor("i-2").Start()) }
	withdraws("i-2", 0, query.ErrStarted, 2)
	b.withdrawn, b.err = nil, errors.New("NATS does not answer")
	if _, err := s.reader.Withdraw(t.Context(), "x"); history.ClassOf(err) != history.Retry {
		t.Errorf("got %v of class %v", err, history.ClassOf(err))
	}
	if _, err := s.ask(t, query.MethodWithdraw, "{}"); err == nil || !strings.Contains(err.Error(), "which instance?") {
		t.Errorf("got %v", err)
	}
	_, err := newSystem(t, query.Options{Pending: &b, ReadOnly: true}).reader.Withdraw(t.Context(), "i")
	if !errors.Is(err, query.ErrReadOnly) {
		t.Errorf("got %v", err)
	}
}
