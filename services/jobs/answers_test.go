package jobserver

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/jobs"
)

// endless is a store whose jobs of 256 KiB never end. Its operations begin when the test lets them.
type endless struct {
	jobs.Store
	begin chan struct{}
}

var largeJob = json.RawMessage(`"` + strings.Repeat("x", DefaultMaxJob-2) + `"`)

func (s endless) Do(_ context.Context, _ string, ops ...jobs.Operation) ([]jobs.Result, error) {
	if s.begin != nil {
		<-s.begin
	}
	all := make([]jobs.Result, len(ops))
	for n, op := range ops {
		if p, ok := op.(jobs.Pop); ok {
			all[n] = jobs.Result{Items: make([]jobs.Job, min(p.Count, max(1, p.Bytes/len(largeJob))))}
			all[n].Count = len(all[n].Items)
			for i := range all[n].Items {
				all[n].Items[i].Data = largeJob
			}
		}
	}
	return all, nil
}

func (s endless) Dead(_ context.Context, _ string, _ jobs.DeadID, limit int) ([]jobs.Dead, error) {
	all := make([]jobs.Dead, limit)
	for i := range all {
		all[i].Data = largeJob
	}
	return all, nil
}

// unread is a connection whose client does not read answers until the test ends.
type unread struct {
	*httptest.ResponseRecorder
	told chan<- *unread
	read <-chan struct{}
}

func (u *unread) Write(data []byte) (int, error) {
	u.told <- u
	<-u.read
	return u.ResponseRecorder.Write(data)
}

// readers are clients whose answers wait until they read.
type readers struct {
	*testing.T
	from http.Handler
	told chan *unread
	read chan struct{}
	all  sync.WaitGroup
}

func newReaders(t *testing.T, store jobs.Store) (*Server, *readers) {
	path := filepath.Join(t.TempDir(), "access.yaml")
	text := "callers:\n"
	for _, name := range []string{"mallory", "ann"} {
		text += "  - {name: " + name + ", token_sha256: [" + hash(name) +
			"], allow: [{queues: ['*'], permissions: ['*']}]}\n"
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	access, err := OpenAccess(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(store, Config{Address: "127.0.0.1:0", Access: access, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, &readers{T: t, from: s.Handler(), told: make(chan *unread), read: make(chan struct{})}
}

// send sends a request of a caller.
func (r *readers) send(caller, method, path, body string) {
	req := httptest.NewRequest(method, path, strings.NewReader(body))
	req.Header.Set("Authorization", "Bearer "+caller)
	u := &unread{httptest.NewRecorder(), r.told, r.read}
	r.all.Go(func() { r.from.ServeHTTP(u, req) })
}

// ask sends a request, and returns the status of the answer when it waits for its client.
func (r *readers) ask(caller, method, path, body string) int {
	r.send(caller, method, path, body)
	return (<-r.told).Code
}

// finish has all clients read their answers.
func (r *readers) finish() {
	close(r.read)
	r.all.Wait()
}

// TestAnswersThatAreNotReadTakeNoMoreMemory: a caller that reads none of its large answers gets no
// more of them after half of the memory, and leaves room to others.
func TestAnswersThatAreNotReadTakeNoMoreMemory(t *testing.T) {
	for name, large := range map[string][2]string{
		"pop of many": {"POST", "/queue/q/pop?count=1000"},
		"pop of few":  {"POST", "/queue/q/pop?count=16"},
		"dead jobs":   {"GET", "/queue/q/dead?limit=1000"},
	} {
		t.Run(name, func(t *testing.T) {
			s, r := newReaders(t, endless{})
			n := 0
			for r.ask("mallory", large[0], large[1], "") == http.StatusOK {
				if n++; n == 2*answerBytes/(4<<20) {
					t.Fatalf("one caller has %d answers of more than 4 MiB in memory", n)
				}
			}
			if held := s.answers.held.of["mallory"]; held < answerBytes/3 || held > answerBytes/2+maxAnswer {
				t.Errorf("one caller alone holds %d bytes of answers, which may be half of all", held)
			}
			if status := r.ask("mallory", "POST", "/queue/q/push", `{"item": 1}`); status != http.StatusOK {
				t.Errorf("the push of a caller without room is answered with %d", status)
			}
			if status := r.ask("ann", large[0], large[1], ""); status != http.StatusOK {
				t.Errorf("another caller is answered with %d", status)
			}
			r.finish()
			if a := s.answers.held; a.free != answerBytes || len(a.of) > 0 {
				t.Errorf("after all answers, %d bytes are free, and %d callers hold some", a.free, len(a.of))
			}
		})
	}
}

// TestPopsThatWaitFindNoRoomLater: pops that arrive together have as much memory as those that
// arrive one after the other, and what one transaction pops.
func TestPopsThatWaitFindNoRoomLater(t *testing.T) {
	store := endless{begin: make(chan struct{})}
	s, r := newReaders(t, store)
	const pops = 40
	for range pops {
		r.send("mallory", "POST", "/queue/q/pop?count=1000", "")
	}
	close(store.begin)
	done := 0
	for range pops {
		if (<-r.told).Code == http.StatusOK {
			done++
		}
	}
	if most := answerBytes/2/maxAnswer + gatherJobs*DefaultMaxJob/maxAnswer; done < 2 || done > most {
		t.Errorf("%d of %d pops are done; want at most %d", done, pops, most)
	}
	r.finish()
	if a := s.answers.held; a.free != answerBytes {
		t.Errorf("after all answers, %d bytes are free", a.free)
	}
}

// TestAnAbandonedPopHoldsNothing: if a transaction completes after its client has gone, no client
// reads the answer, and nothing frees it.
func TestAnAbandonedPopHoldsNothing(t *testing.T) {
	store := endless{begin: make(chan struct{})}
	s, _ := newReaders(t, store)
	ctx, gone := context.WithCancel(t.Context())
	h := s.answers.of(nil)
	gone()
	if _, err := s.operations.gathered(ctx, "q", jobs.Pop{Count: 1}, h, nil); err == nil {
		t.Fatal("a pop whose client has gone has a result")
	}
	h.release()
	w := &waiting{answer: h, result: jobs.Result{Items: []jobs.Job{{Data: largeJob}}}}
	w.hold()
	close(store.begin)
	s.operations.line.wait(time.Hour)
	if s.answers.held.free != answerBytes {
		t.Errorf("%d bytes are free; want %d", s.answers.held.free, answerBytes)
	}
}

// entered is a store whose operations tell that they have begun, and end when the test lets them.
type entered struct {
	endless
	in chan struct{}
}

func (s entered) Do(ctx context.Context, name string, ops ...jobs.Operation) ([]jobs.Result, error) {
	s.in <- struct{}{}
	return s.endless.Do(ctx, name, ops...)
}

// free is how much of the memory for bodies is free.
func (m *memory) free() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.small.free + m.large.free
}

// TestAnAbandonedPushHoldsItsBody: pushes whose clients have gone hold their bodies as long as the
// database may need them: one in flight, and one that waits behind it.
func TestAnAbandonedPushHoldsItsBody(t *testing.T) {
	store := entered{endless{begin: make(chan struct{})}, make(chan struct{}, 2)}
	s, err := New(store, Config{Address: "127.0.0.1:0", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	all := s.bodies.memory.free()
	body := `{"item": ` + string(largeJob) + `}`
	ctx, gone := context.WithCancel(t.Context())
	var requests sync.WaitGroup
	send := func() {
		r := httptest.NewRequest("POST", "/queue/q/push", strings.NewReader(body)).WithContext(ctx)
		r.Host, r.RemoteAddr = "127.0.0.1", "127.0.0.1:1"
		requests.Go(func() { s.Handler().ServeHTTP(httptest.NewRecorder(), r) })
	}
	send()
	<-store.in
	send()
	for { // it waits in the line
		s.operations.line.mu.Lock()
		n := len(s.operations.line.queues["q"].waiting)
		s.operations.line.mu.Unlock()
		if n == 1 {
			break
		}
		runtime.Gosched()
	}
	gone()
	requests.Wait()
	if is, most := s.bodies.memory.free(), all-2*int64(len(body)); is > most {
		t.Errorf("%d bytes are free while the database has two pushes; want %d at most", is, most)
	}
	close(store.begin)
	s.operations.line.wait(time.Hour)
	if is := s.bodies.memory.free(); is != all {
		t.Errorf("at the end, %d bytes are free; want %d", is, all)
	}
}
