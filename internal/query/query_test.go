package query_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/internal/query"
	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/historytest"
	"github.com/rondo-run/rondo/pkg/history/sqlite"
	"github.com/rondo-run/rondo/pkg/round"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// system is a store that clients read over a broker.
type system struct {
	*fakeBroker
	store  *sqlite.Store
	reader *query.Reader
}

func newSystem(t testing.TB, o query.Options) *system {
	t.Helper()
	s, err := sqlite.Open(t.Context(), sqlite.Memory, sqlite.Options{})
	must(t, err)
	b := newBroker()
	stop, err := query.Answer(b, s, o)
	must(t, err)
	t.Cleanup(func() {
		stop()
		if len(b.answers) != 0 {
			t.Errorf("%d methods are still answered", len(b.answers))
		}
		must(t, s.Close())
	})
	return &system{b, s, query.NewPatientReader(b)}
}

func (s *system) commit(t testing.TB, turns ...*round.Turn) {
	t.Helper()
	for _, turn := range turns {
		r, err := s.store.Commit(t.Context(), historytest.Batch(t, turn))
		if err != nil || r.Outcomes[0].Status != history.Committed {
			t.Fatal(r, err)
		}
	}
}

func (s *system) ask(t testing.TB, method, question string) (string, error) {
	t.Helper()
	a, err := s.Request(t.Context(), method, []byte(question))
	return string(a), err
}

// TestAskByHand: requests and answers read well.
func TestAskByHand(t *testing.T) {
	s := newSystem(t, query.Options{})
	a := historytest.NewActor("order-7").At(time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC))
	s.commit(t, a.Start(historytest.WithAttributes(map[string]string{"a": "<b>"})), a.Complete(`{"html":"<b>"}`))
	got, err := s.ask(t, query.MethodInstance, `{"instance":"order-7"}`)
	must(t, err)
	for _, want := range []string{`"instance":"order-7"`, `"status":"completed"`, `"output":{"html":"<b>"}`,
		`"created_at":"2026-01-02T03:04:05.000006Z"`, `"attributes":{"a":"<b>"}`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is not in %s", want, got)
		}
	}
	for question, want := range map[string]string{
		`{"filter":{"statuses":["completed"]},"limit":5}`: `{"instances":[{"instance":"order-7"`,
		`{"filter":{"name":"other"}}`:                     `{"instances":[]}`,
		``:                                                `{"instances":[{"instance":"order-7"`,
	} {
		if got, err := s.ask(t, query.MethodList, question); err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %s, %v", question, got, err)
		}
	}
}

func TestQuestionsAreReadStrictly(t *testing.T) {
	s := newSystem(t, query.Options{})
	for _, c := range [][3]string{
		{query.MethodInstance, `{"instnace":"a"}`,
			`question for instance: json: unknown field "instnace"; it is a JSON object like`},
		{query.MethodInstance, `{"instance":"a"} {}`, "there is something behind the value"},
		{query.MethodInstance, `order-7`, "it is a JSON object like"},
		{query.MethodInstance, ``,
			`question for instance: which instance? It is a JSON object like {"instance":"order-7"}`},
		{query.MethodWaiting, `{}`, "which instance?"},
		{query.MethodValue, `{"key":"total"}`, `like {"instance":"order-7","key":"total"}`},
		{query.MethodList, `{"attributes":{"region":"eu"}}`,
			`question for list: json: unknown field "attributes"; it is a JSON object like {"filter":{"name":"fulfil"`},
		{query.MethodCount, `all`, `like {"filter":`},
		{query.MethodDeleteEnded, `{"filters":{"name":"x"}}`, `unknown field "filters"`},
		{query.MethodDeleteEnded, `{}`, "an empty filter stands for all"},
		{query.MethodPruneAll, `{}`, "an empty filter stands for all"},
		{query.MethodDelete, `{}`, `question for delete: which?`},
		{query.MethodList, `{"limit":-1}`, "out of range"},
		{query.MethodList, `{"limit":99999999999}`, "out of range"},
		{query.MethodList, `{"cursor":"` + strings.Repeat("x", 1<<20) + `"}`, "too much"},
	} {
		_, err := s.ask(t, c[0], c[1])
		var a *broker.ResponseError
		if !errors.As(err, &a) || a.Code != "bad_question" || !strings.Contains(a.Message, c[2]) {
			t.Errorf("%s %.40s: got %v, want %q", c[0], c[1], err, c[2])
		}
	}
}

// TestListsOfRequestsAreBounded: a request with a long list is refused before it is decoded as a
// whole, and one with the longest list allowed is not.
func TestListsOfRequestsAreBounded(t *testing.T) {
	s := newSystem(t, query.Options{CheckStart: func(*events.Start) (bool, *failure.Error) { return true, nil }})
	list := func(n int, element string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + "]"
	}
	attributes := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"a%d":"",`, i)
		}
		return "{" + strings.TrimSuffix(b.String(), ",") + "}"
	}
	for field, f := range map[string]struct {
		most int
		of   func(n int) string
	}{
		"ids":        {query.MaxIDs, func(n int) string { return list(n, `"a,\",b\\"`) }},
		"statuses":   {events.MaxAttributes, func(n int) string { return list(n, `"running"`) }},
		"attributes": {events.MaxAttributes, attributes},
	} {
		for _, method := range []string{query.MethodList, query.MethodCount, query.MethodDeleteEnded,
			query.MethodPruneAll} {
			for _, n := range []int{f.most, f.most + 1, 60_000} {
				_, err := s.ask(t, method, `{"filter":{"`+field+`":`+f.of(n)+`},"keep":{"last":1}}`)
				checkTooMany(t, fmt.Sprintf("%s of %d %s", method, n, field), n > f.most, err)
			}
		}
	}
	for _, n := range []int{query.MaxIDs, query.MaxIDs + 1, 60_000} {
		_, err := s.ask(t, query.MethodDelete, `{"instances":`+list(n, `"a"`)+`}`)
		checkTooMany(t, fmt.Sprintf("delete %d", n), n > query.MaxIDs, err)
		_, err = s.reader.Delete(t.Context(), slices.Repeat([]string{"a"}, n), history.Deletion{})
		if tooMany := strings.Contains(err.Error(), "send several requests"); tooMany != (n > query.MaxIDs) ||
			history.ClassOf(err) != history.Permanent {
			t.Errorf("%d instances: got %v", n, err)
		}
		_, err = s.reader.Count(t.Context(), history.Filter{IDs: slices.Repeat([]string{"a"}, n)}, 0)
		if (err != nil) != (n > query.MaxIDs) || err != nil && !strings.Contains(err.Error(), "send several requests") {
			t.Errorf("%d ids: got %v", n, err)
		}
	}
	start := `{"start":{"orchestration":"fulfil","input":` + list(100_000, "1") + `}}`
	if _, err := s.ask(t, query.MethodCheckStart, start); err != nil {
		t.Errorf("a long input: %v", err)
	}
	if _, err := s.ask(t, query.MethodCheckStart, `{"instances":`+list(60_000, `"a"`)+`}`); err == nil {
		t.Error("instances of a start")
	}
}

func checkTooMany(t *testing.T, what string, want bool, err error) {
	t.Helper()
	var a *broker.ResponseError
	isTooMany := errors.As(err, &a) && a.Code == "bad_question" && strings.Contains(a.Message, "send several requests")
	if isTooMany != want {
		t.Errorf("%s: got %v, want too many: %t", what, err, want)
	}
}

func TestReadOnly(t *testing.T) {
	s := newSystem(t, query.Options{ReadOnly: true})
	_, err := s.reader.Delete(t.Context(), []string{"a"}, history.Deletion{})
	if !errors.Is(err, query.ErrReadOnly) || history.ClassOf(err) != history.Permanent {
		t.Errorf("got %v", err)
	}
	if _, err := s.reader.PruneAll(t.Context(), history.Filter{}, history.Keep{}, history.Page{}); !errors.Is(err,
		query.ErrReadOnly) {
		t.Errorf("got %v", err)
	}
	if _, err := s.reader.Metrics(t.Context()); err != nil {
		t.Error(err)
	}
	if more, err := s.reader.Tidy(t.Context()); more || err != nil {
		t.Errorf("got %t, %v", more, err)
	}
	if _, err := query.Answer(newBroker(), s.store, query.Options{MaxAnswer: 100}); err == nil {
		t.Error("answers of 100 bytes")
	}
}

// TestLargeAnswers: an answer larger than a message comes in parts, of JSON and of other bytes.
func TestLargeAnswers(t *testing.T) {
	s := newSystem(t, query.Options{})
	noise := make(codec.Payload, events.MaxPayload)
	state := uint32(1)
	for i := range noise {
		state = state*1664525 + 1013904223
		noise[i] = byte(state >> 24)
	}
	for name, output := range map[string]codec.Payload{"text": codec.Payload(`"` + strings.Repeat("x",
		events.MaxPayload-2) + `"`), "bytes": noise} {
		a := historytest.NewActor(name)
		s.commit(t, a.Start(), a.Complete(string(output)))
		info, err := s.reader.Instance(t.Context(), name)
		if err != nil || !bytes.Equal(info.Output, output) {
			t.Errorf("%s: got %d bytes, %v", name, len(info.Output), err)
		}
		export, err := history.Export(t.Context(), s.reader, name, 0)
		if err != nil || len(export.Events) != 2 ||
			!bytes.Equal(export.Events[1].Fact.(*events.Completed).Output, output) {
			t.Errorf("%s: history %v", name, err)
		}
	}
	v := historytest.NewActor("values")
	s.commit(t, v.Start())
	for i := range 40 {
		s.commit(t, v.Set(fmt.Sprint(i), string(noise[i*1000:i*1000+events.MaxValue])))
	}
	got, err := s.reader.Values(t.Context(), "values")
	if err != nil || len(got) != 40 || !bytes.Equal(got["7"].Data, noise[7000:7000+events.MaxValue]) {
		t.Errorf("got %d values, %v", len(got), err)
	}
	for method, n := range s.asked {
		if strings.HasPrefix(method, "parts-") && n < 6 {
			t.Errorf("%d parts", n)
		}
	}
}

// TestLongHistory: pages are bounded by size, and the caller of the Reader does not notice.
func TestLongHistory(t *testing.T) {
	racetest.TooMuch(t)
	s := newSystem(t, query.Options{})
	a := historytest.NewActor("a")
	s.commit(t, a.Start())
	large := codec.Payload(`"` + strings.Repeat("x", 50_000) + `"`)
	for range 15 {
		var turns []*round.Turn
		for range 10 {
			turns = append(turns, a.Say(&events.EventReceived{Wait: 1, Name: "note", Data: large}))
		}
		s.commit(t, historytest.Together(turns...))
	}
	for _, limit := range []int{0, 7, 250, 1000} {
		got, err := s.reader.Events(t.Context(), "a", 0, 0, limit)
		if want := min(151, (history.Page{Limit: limit}).Size()); err != nil || len(got) != want ||
			got[want-1].ID != int64(want) {
			t.Errorf("limit %d: got %d events, %v", limit, len(got), err)
		}
	}
}

// lossy loses answers.
type lossy struct {
	*fakeBroker
	mu   sync.Mutex
	lose func(method string) (answer []byte, err error, lost bool)
}

func (l *lossy) Request(ctx context.Context, method string, q []byte) ([]byte, error) {
	a, err := l.fakeBroker.Request(ctx, method, q)
	l.mu.Lock()
	defer l.mu.Unlock()
	if b, e, lost := l.lose(method); lost {
		return b, e
	}
	return a, err
}

// An error of the broker names the method, and that of the reader does not repeat it.
func TestErrorsNameTheMethodOnce(t *testing.T) {
	_, err := query.NewReader(newBroker()).List(t.Context(), history.Filter{}, history.Page{})
	if !errors.Is(err, broker.ErrNoResponders) || strings.Count(err.Error(), "request list") != 1 {
		t.Errorf("got %v", err)
	}
}

func TestLostAnswersAreAskedForAgain(t *testing.T) {
	s := newSystem(t, query.Options{MaxAnswer: 16 << 10})
	a := historytest.NewActor("a")
	s.commit(t, a.Start(), a.Complete(`"`+strings.Repeat("x", 100<<10)+`"`))
	gone := &broker.ResponseError{Code: "gone"}
	for name, c := range map[string]struct {
		times int
		parts bool
		err   error
		class history.Class // 0: it is answered in the end
	}{
		"a timeout":            {2, false, context.DeadlineExceeded, 0},
		"timeouts":             {9, false, context.DeadlineExceeded, history.Retry},
		"nobody":               {9, false, broker.ErrNoResponders, history.Retry},
		"parts gone":           {2, true, gone, 0},
		"who has parts gone":   {1, true, broker.ErrNoResponders, 0},
		"parts gone for ever":  {9, true, gone, history.Retry},
		"a part that is lost":  {1, true, context.DeadlineExceeded, 0},
		"those who answer end": {9, false, &broker.ResponseError{Code: "retry", Message: "it ends"}, history.Retry},
	} {
		t.Run(name, func(t *testing.T) {
			left := c.times
			r := query.NewReader(&lossy{fakeBroker: s.fakeBroker, lose: func(method string) ([]byte, error, bool) {
				if strings.HasPrefix(method, "parts-") != c.parts || left == 0 {
					return nil, nil, false
				}
				left--
				return nil, fmt.Errorf("lost: %w", c.err), true
			}})
			info, err := r.Instance(t.Context(), "a")
			switch {
			case c.class == 0 && (err != nil || len(info.Output) != 100<<10+2):
				t.Errorf("got %d bytes, %v", len(info.Output), err)
			case c.class != 0 && (err == nil || history.ClassOf(err) != c.class):
				t.Errorf("got %v of class %v", err, history.ClassOf(err))
			}
		})
	}
}

// frozen is a broker that gives each request to an orchestrator that is frozen. The other one gets
// requests of its own, unless it is of an older version.
type frozen struct {
	*fakeBroker
	older bool
	mu    sync.Mutex
	asked []string
	calls chan string // each method in asked
}

func newFrozen(b *fakeBroker, older bool) *frozen {
	return &frozen{fakeBroker: b, older: older, calls: make(chan string, 100)}
}

func (f *frozen) Request(ctx context.Context, method string, q []byte) ([]byte, error) {
	f.mu.Lock()
	f.asked = append(f.asked, method)
	first := slices.Index(f.asked, method) == len(f.asked)-1
	f.mu.Unlock()
	f.calls <- method
	if strings.HasPrefix(method, "to-") || f.older && !first {
		return f.fakeBroker.Request(ctx, method, q)
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

func (f *frozen) Discover(ctx context.Context, m string, q []byte, quiet time.Duration) ([][]byte, error) {
	if f.older {
		return nil, broker.ErrNoResponders
	}
	return f.fakeBroker.Discover(ctx, m, q, quiet)
}

// TestAFrozenOrchestratorIsAskedOnce: another orchestrator gets the request after a moment; a
// request that removes stays with the one that has it.
func TestAFrozenOrchestratorIsAskedOnce(t *testing.T) {
	s := newSystem(t, query.Options{ID: "lively", MaxAnswer: 16 << 10})
	a := historytest.NewActor("a")
	s.commit(t, a.Start(), a.Complete("1"))
	for _, older := range []bool{false, true} {
		f := newFrozen(s.fakeBroker, older)
		r := query.NewHastyReader(f)
		if i, err := r.Instance(t.Context(), "a"); err != nil || string(i.Output) != "1" {
			t.Errorf("older: %t: got %+v, %v", older, i, err)
		}
		if calls := []string{<-f.calls, <-f.calls}; !slices.Contains(calls, query.MethodInstance) || len(f.calls) > 0 {
			t.Errorf("older: %t: asked %q and %d more", older, calls, len(f.calls))
		}
		if _, err := r.Instance(t.Context(), "nobody"); !errors.Is(err, history.ErrNoInstance) {
			t.Errorf("older: %t: got %v", older, err)
		}
	}
	f := newFrozen(s.fakeBroker, false)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error)
	go func() {
		_, err := query.NewHastyReader(f).Delete(ctx, []string{"a"}, history.Deletion{})
		done <- err
	}()
	select {
	case err := <-done:
		t.Errorf("got %v", err)
	case <-time.After(20 * time.Millisecond): // far more than the Reader waits before it repeats
	}
	cancel()
	if err := <-done; history.ClassOf(err) != history.Ambiguous || fmt.Sprint(f.asked) != "[delete]" {
		t.Errorf("got %v after %q", err, f.asked)
	}
}

// TestRequestsForOneOrchestratorOnlyRead: they are not a way around a permission that leaves out
// the methods that remove.
func TestRequestsForOneOrchestratorOnlyRead(t *testing.T) {
	s := newSystem(t, query.Options{ID: "lively", Recover: func(context.Context) (query.Recovery, error) {
		t.Error("it recovers")
		return query.Recovery{}, nil
	}})
	a := historytest.NewActor("a")
	s.commit(t, a.Start(), a.Complete("1"))
	answer, err := s.ask(t, query.MethodPing, "")
	must(t, err)
	var ping query.Ping
	must(t, json.Unmarshal([]byte(answer), &ping))
	if ping.ID != "lively" {
		t.Errorf("got %q", answer)
	}
	if _, err := s.ask(t, ping.Method, `{"method":"instance","question":{"instance":"a"}}`); err != nil {
		t.Error(err)
	}
	for _, question := range []string{`{"method":"delete","question":{"instances":["a"]}}`, `{"method":"recover"}`,
		`{"method":"` + ping.Method + `"}`, `{"method":"nothing"}`, `{}`, `a`} {
		_, err := s.ask(t, ping.Method, question)
		var told *broker.ResponseError
		if !errors.As(err, &told) || told.Code != "bad_question" {
			t.Errorf("%s: got %v", question, err)
		}
	}
}

// TestRemovingIsAskedForOnce: when the answer is lost, the outcome is ambiguous.
func TestRemovingIsAskedForOnce(t *testing.T) {
	s := newSystem(t, query.Options{})
	asked := 0
	r := query.NewReader(&lossy{fakeBroker: s.fakeBroker, lose: func(string) ([]byte, error, bool) {
		asked++
		return nil, context.DeadlineExceeded, true
	}})
	_, err := r.Prune(t.Context(), "a", history.Keep{})
	if asked != 1 || history.ClassOf(err) != history.Ambiguous || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("asked %d times, got %v", asked, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.reader.Instance(ctx, "a"); !errors.Is(err, context.Canceled) ||
		history.ClassOf(err) != history.Retry {
		t.Errorf("got %v", err)
	}
	if d, err := r.Delete(t.Context(), nil, history.Deletion{}); d.Instances != 0 || err != nil {
		t.Errorf("got %v, %v", d, err)
	}
}

func TestDeletionIsAnnounced(t *testing.T) {
	s := newSystem(t, query.Options{})
	a := historytest.NewActor("a")
	s.commit(t, a.Start(), a.Complete("1"))
	var heard []query.Notification
	stop, err := query.Listen(t.Context(), s.fakeBroker, "a", func(n query.Notification) { heard = append(heard, n) })
	must(t, err)
	defer stop()
	_, err = s.reader.Delete(t.Context(), []string{"a"}, history.Deletion{})
	must(t, err)
	if topics(heard) != "deleted" {
		t.Errorf("heard %+v", heard)
	}
}

func TestWaitingExplains(t *testing.T) {
	s := newSystem(t, query.Options{Explain: func(_ context.Context, w *query.Waiting) {
		w.Notes = append(w.Notes, "seen by "+w.Instance)
	}})
	for id, status := range map[string]round.Status{"running": round.Running, "suspended": round.Suspended,
		"halted": round.Halted} {
		turn := historytest.NewActor(id).StartAndCall()
		if turn.Row.Status = status; status == round.Halted {
			turn.Row.Error = &failure.Error{Kind: failure.Nondeterminism, Message: "a timer is missing"}
		}
		s.commit(t, turn)
	}
	broken := historytest.NewActor("broken")
	s.commit(t, broken.Start(), broken.Note())
	fails, idle := historytest.NewActor("failed"), historytest.NewActor("idle")
	s.commit(t, fails.Start(), fails.Fail("no"), idle.Start())
	for id, want := range map[string]string{
		"suspended": "it was suspended",
		"halted":    "its code does not fit its history: a timer is missing",
		"broken":    "its history cannot be read",
		"failed":    "it has ended (failed): no",
		"idle":      "it waits for nothing that history tells of",
		"running":   "seen by running",
	} {
		w, err := s.reader.Waiting(t.Context(), id)
		if err != nil || !slices.ContainsFunc(w.Notes, func(n string) bool {
			return strings.Contains(n, want)
		}) || !slices.Contains(w.Notes, "seen by "+id) {
			t.Errorf("%s: got %+v, %v", id, w, err)
		}
		if waits := id == "running" || id == "suspended" || id == "halted"; waits != (len(w.Waits) == 1) {
			t.Errorf("%s waits for %+v", id, w)
		}
	}
	w, err := s.reader.Waiting(t.Context(), "running")
	if err != nil || len(w.Waits) != 1 || w.Waits[0].Kind != round.WaitsForActivity || w.Waits[0].Name != "charge" ||
		!w.Waits[0].Since.Equal(historytest.Began) {
		t.Errorf("got %+v, %v", w, err)
	}
}

// ---- Invalid data.

// FuzzAnswer: for any answer, a Reader returns a value or an error.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{
		``, `null`, `{}`, `[]`, `{"events":[null],"more":true}`, `{"events":[{"id":1}],"more":true}`,
		`{"instances":[{"output":null}],"next":"x"}`,
		`{"$parts":null}`, `{"$parts":{"method":"parts-x","token":"t","count":1,"bytes":10}}`,
		`{"$parts":{"method":"instance","count":99999999999}}`,
		`{"executions":[],"more":true}`, `{"events":[],"more":true}`, `{"values":{"k":{}}}`,
		`{"problem":{"column":"x"}}`,
	} {
		f.Add([]byte(s), []byte(s))
	}
	f.Fuzz(func(t *testing.T, answer, part []byte) {
		r := query.NewReader(&lossy{fakeBroker: newBroker(), lose: func(method string) ([]byte, error, bool) {
			if strings.HasPrefix(method, "parts-") {
				return part, nil, true
			}
			return answer, nil, true
		}})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, _ = r.Instance(ctx, "a")
		_, _ = r.List(ctx, history.Filter{}, history.Page{})
		_, _ = r.Events(ctx, "a", 0, 0, 10)
		_, _ = r.Executions(ctx, "a", 0, 10)
		_, _ = r.Values(ctx, "a")
		_, _, _ = r.Value(ctx, "a", "k")
		_, _ = r.Waiting(ctx, "a")
		_, _ = r.Tree(ctx, "a")
		_, _ = r.Metrics(ctx)
		_, _ = r.Delete(ctx, []string{"a"}, history.Deletion{})
	})
}

// FuzzQuestion: for any request, there is an answer that is JSON, or an error with a code.
func FuzzQuestion(f *testing.F) {
	s := newSystem(f, query.Options{ReadOnly: true})
	a := historytest.NewActor("a")
	s.commit(f, a.StartAndCall(), a.Set("k", "1"))
	for _, q := range []string{``, `{}`, `{"instance":"a"}`, `{"instance":"a","execution":1,"after":1,"limit":1}`,
		`{"filter":{"ids":["a"]}}`, `{"cursor":"x"}`, `{"token":"x","part":9223372036854775807}`} {
		f.Add([]byte(q))
	}
	f.Fuzz(func(t *testing.T, q []byte) {
		for method, answer := range s.answers {
			data, err := answer(t.Context(), q)
			var known *broker.ResponseError
			if err != nil && (!errors.As(err, &known) || known.Code == "") || err == nil && !json.Valid(data) {
				t.Errorf("%s %s: got %s, %v", method, q, data, err)
			}
		}
	})
}

// Requests that need the database wait until it may be used. One that must not wait for longer is
// not done, and may be repeated.
func TestRequestsWaitForTheDatabase(t *testing.T) {
	waits, may := make(chan struct{}, 1), make(chan struct{})
	s := newSystem(t, query.Options{
		System: func(context.Context) (query.System, error) { return query.System{}, nil },
		Await: func(ctx context.Context) error {
			waits <- struct{}{}
			select {
			case <-may:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}})
	s.commit(t, historytest.NewActor("i").Start())
	if _, err := s.ask(t, query.MethodSystem, `{}`); err != nil {
		t.Errorf("a request that needs no database has %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-waits
		cancel()
	}()
	_, err := s.Request(ctx, query.MethodDelete, []byte(`{"instance":"i","deletion":{"force":true}}`))
	var told *broker.ResponseError
	if !errors.As(err, &told) || told.Code != history.Retry.String() {
		t.Errorf("a deletion has %v", err)
	}
	close(may)
	if got, err := s.ask(t, query.MethodInstance, `{"instance":"i"}`); err != nil ||
		!strings.Contains(got, `"instance":"i"`) {
		t.Errorf("the instance is %s, %v", got, err)
	}
}
