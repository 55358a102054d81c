package jobserver_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/pkg/history/sqlite"
	jobserver "github.com/rondo-run/rondo/services/jobs"
)

// This file has clients that are slow, large, old, in a hurry, or gone.

// inMemory is a store in memory.
func inMemory(t *testing.T) jobs.Store {
	t.Helper()
	db, err := sqlite.Open(t.Context(), sqlite.Memory, sqlite.Options{Log: silence})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db.Queues()
}

// hurried serves with little time for headers and bodies.
func hurried(t *testing.T, headers, all time.Duration) *jobserver.Server {
	t.Helper()
	s, err := jobserver.New(inMemory(t), jobserver.Config{Address: "127.0.0.1:0", MaxBody: 1000, Logger: silence})
	if err != nil {
		t.Fatal(err)
	}
	s.Hurry(headers, all)
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s
}

// wire is a connection that is written to by hand.
type wire struct {
	*testing.T
	net.Conn
	in *bufio.Reader
}

func dial(t *testing.T, s *jobserver.Server, text string) *wire {
	t.Helper()
	c, err := net.Dial("tcp", s.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	return &wire{t, c, bufio.NewReader(c)}
}

// answer reads an answer to a method.
func (l *wire) answer(method string) (status int, body string, h http.Header) {
	l.Helper()
	r, err := http.ReadResponse(l.in, &http.Request{Method: method})
	if err != nil {
		l.Fatal(err)
	}
	data, err := io.ReadAll(r.Body)
	if err != nil {
		l.Fatal(err)
	}
	return r.StatusCode, string(data), r.Header
}

// ends waits until the server has ended the connection, and returns the text before the end.
func (l *wire) ends() string {
	l.Helper()
	data, err := io.ReadAll(l.in)
	var reset *net.OpError
	if err != nil && !errors.As(err, &reset) { // unread data resets the connection
		l.Fatal(err)
	}
	return string(data)
}

func TestSlowClients(t *testing.T) {
	const post = "POST /queue/q/push HTTP/1.1\r\nHost: localhost\r\nContent-Length: 12\r\n"
	t.Run("headers", func(t *testing.T) {
		l := dial(t, hurried(t, 50*time.Millisecond, time.Minute), post+"X-Slow: ")
		if got := l.ends(); got != "" {
			t.Errorf("the server said %q", got)
		}
	})
	t.Run("nothing", func(t *testing.T) {
		dial(t, hurried(t, 50*time.Millisecond, time.Minute), "").ends()
	})
	t.Run("body", func(t *testing.T) {
		l := dial(t, hurried(t, time.Minute, 50*time.Millisecond), post+"\r\n{\"item\"")
		status, body, _ := l.answer("POST")
		if status != http.StatusRequestTimeout || !strings.Contains(body, `"TOO_SLOW"`) ||
			strings.Contains(body, "127.0.0.1") {
			t.Errorf("%d %s", status, body)
		}
		l.ends()
	})
	t.Run("body that nobody reads", func(t *testing.T) {
		l := dial(t, hurried(t, time.Minute, 50*time.Millisecond),
			"POST /queue/q/pop HTTP/1.1\r\nHost: localhost\r\nContent-Length: 12\r\n\r\n")
		if status, body, _ := l.answer("POST"); status != http.StatusOK {
			t.Errorf("%d %s", status, body)
		}
		l.ends()
	})
}

func TestLargeRequests(t *testing.T) {
	s := hurried(t, time.Minute, time.Minute)
	t.Run("length", func(t *testing.T) {
		// Nothing of the body is sent, and none of it asked for.
		l := dial(t, s, "POST /queue/q/push HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1001\r\nExpect: "+
			"100-continue\r\n\r\n")
		if status, body, _ := l.answer("POST"); status != http.StatusRequestEntityTooLarge ||
			!strings.Contains(body, `"TOO_LARGE"`) {
			t.Errorf("%d %s", status, body)
		}
	})
	t.Run("length without a body", func(t *testing.T) {
		l := dial(t, s, "POST /queue/q/push HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1001\r\n\r\n")
		if status, body, _ := l.answer("POST"); status != http.StatusRequestEntityTooLarge ||
			!strings.Contains(body, `"TOO_LARGE"`) {
			t.Errorf("%d %s", status, body)
		}
	})
	t.Run("chunks", func(t *testing.T) {
		// The last chunk does not come.
		l := dial(t, s, "POST /queue/q/push HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n"+
			strings.Repeat(" ", 1001)+"\r\n")
		if status, body, _ := l.answer("POST"); status != http.StatusRequestEntityTooLarge ||
			!strings.Contains(body, `"TOO_LARGE"`) {
			t.Errorf("%d %s", status, body)
		}
	})
	t.Run("headers", func(t *testing.T) {
		var many strings.Builder
		for n := range 2000 {
			fmt.Fprintf(&many, "X-Header-%d: %d\r\n", n, n)
		}
		l := dial(t, s, "GET /queues HTTP/1.1\r\nHost: localhost\r\n"+many.String()+"\r\n")
		if status, body, _ := l.answer("GET"); status != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("%d %s", status, body)
		}
	})
	t.Run("exactly", func(t *testing.T) {
		body := `{"item": "` + strings.Repeat("x", 1000-12) + `"}`
		l := dial(t, s, fmt.Sprintf("POST /queue/q/push HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s",
			len(body), body))
		if status, body, _ := l.answer("POST"); status != http.StatusOK {
			t.Errorf("%d %s", status, body)
		}
	})
}

// A job that nests too deep for its consumers is refused; one that does not can be read.
func TestDeepJobs(t *testing.T) {
	onEach(t, func(t *testing.T, s *service) {
		nested := func(depth int) string { return strings.Repeat(`[`, depth) + `"[\"["` + strings.Repeat(`]`, depth) }
		s.post("/queue/q/push", `{"item": `+nested(9001)+`}`).is(400, map[string]any{"error_code": "INVALID_REQUEST"})
		s.post("/queue/q/push", `{"items": [{"item": `+nested(9000)+`}, {"item": `+nested(100_000)+`}]}`).is(400, nil)
		s.post("/queue/q/push", `{"item": `+nested(9000)+`}`).is(200, nil)
		if got := s.post("/queue/q/pop?details=true", "").is(200, nil); !strings.Contains(got.text, nested(9000)) {
			t.Error("the item has changed")
		}
	})
}

func TestNumbersInTheQuery(t *testing.T) {
	onEach(t, func(t *testing.T, s *service) {
		huge := strings.Repeat("9", 5000)
		s.push("q", 0, 1, 2)
		for _, query := range []string{"count=" + huge, "count=-" + huge, "count=1e3", "count=0", "require_ack=",
			"require_ack", "require_ack=true&require_ack=true", "require_ack=true;count=1", "require_ack=%"} {
			s.post("/queue/q/pop?"+query, "").is(400, map[string]any{"error_code": "INVALID_REQUEST"})
		}
		for _, path := range []string{"/queues?limit=" + huge, "/queue/q/dead?limit=-" + huge,
			"/queue/q/dead?after=" + huge + "-1"} {
			s.ask("GET", path, "").is(400, map[string]any{"error_code": "INVALID_REQUEST"})
		}
		at := s.clock.now().Add(300 * time.Second).UnixMilli()
		s.post("/queue/q/pop?require_ack=true&ttl_seconds="+huge, "").is(200,
			map[string]any{"count": 1, "lock_expires_at": float64(at) / 1000})
	})
}

// A reason that is too long is cut between two characters.
func TestLongReason(t *testing.T) {
	onEach(t, func(t *testing.T, s *service) {
		s.ask("PUT", "/queue/q", `{"max_attempts": 1}`).is(200, nil)
		s.push("q", 0, 1)
		lock := s.lock("q", "", 1)
		s.post("/queue/q/nack", body("lock_id", lock, "reason", "x"+strings.Repeat("é", 600))).is(200,
			map[string]any{"items_dead": 1})
		got := s.ask("GET", "/queue/q/dead", "").is(200, nil).body["items"].([]any)[0].(map[string]any)["reason"]
		if want := "x" + strings.Repeat("é", 499); got != want {
			t.Errorf("%q; want %q", got, want)
		}
	})
}

func TestOtherMethods(t *testing.T) {
	s := hurried(t, time.Minute, time.Minute)
	l := dial(t, s, "POST /queue/q/push HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{\"item\":1}")
	if status, body, _ := l.answer("POST"); status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	l = dial(t, s, "HEAD /queue/q HTTP/1.1\r\nHost: localhost\r\n\r\n")
	if status, body, h := l.answer("HEAD"); status != http.StatusOK || body != "" ||
		h.Get("Content-Type") != "application/json" || h.Get("X-Request-Id") == "" {
		t.Errorf("HEAD: %d %q %v", status, body, h)
	}
	l = dial(t, s, "HEAD /queue/none HTTP/1.1\r\nHost: localhost\r\n\r\n")
	if status, body, h := l.answer("HEAD"); status != http.StatusNotFound || body != "" ||
		h.Get("Content-Type") != "application/problem+json" {
		t.Errorf("HEAD of none: %d %q %v", status, body, h)
	}
	for path, allow := range map[string]string{"/queue/q": "GET, PUT, DELETE", "/queue/q/pop": "POST",
		"/queue/q/dead": "GET, DELETE", "/queues": "GET"} {
		l = dial(t, s, "OPTIONS "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if status, body, h := l.answer("OPTIONS"); status != http.StatusMethodNotAllowed || h.Get("Allow") != allow ||
			!json.Valid([]byte(body)) {
			t.Errorf("OPTIONS %s: %d %q %v", path, status, body, h)
		}
	}
	l = dial(t, s, "GET /queue/q/depth HTTP/1.0\r\nHost: localhost\r\n\r\n")
	if got := l.ends(); !strings.HasPrefix(got, "HTTP/1.0 200 OK\r\n") || !strings.Contains(got, `"depth":1`) {
		t.Errorf("HTTP/1.0: %s", got)
	}
	for _, path := range []string{"//", "//queue/q", "/queue/q/", "/queue/./q", "/queue/x/../q", "/queue//q"} {
		// a redirect of a POST would lose its body with some clients
		l = dial(t, s, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if status, body, _ := l.answer("GET"); status != http.StatusNotFound || !strings.Contains(body, `"NOT_FOUND"`) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}

// Requests that come before the answers to those before them are answered in their order.
func TestPipelining(t *testing.T) {
	var all strings.Builder
	for n := range 20 {
		body := fmt.Sprintf(`{"item": %d}`, n)
		fmt.Fprintf(&all, "POST /queue/q/push HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: "+
			"push-%d\r\nContent-Length: %d\r\n\r\n%s", n, len(body), body)
	}
	for n := range 21 {
		fmt.Fprintf(&all, "POST /queue/q/pop HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: pop-%d\r\n\r\n", n)
	}
	l := dial(t, hurried(t, time.Minute, time.Minute), all.String())
	for n := range 20 {
		if status, body, h := l.answer("POST"); status != http.StatusOK ||
			h.Get("X-Request-Id") != fmt.Sprintf("push-%d", n) {
			t.Fatalf("%d %s %v", status, body, h)
		}
	}
	for n := range 21 {
		want := fmt.Sprintf(`{"items":[%d],"count":1}`, n)
		if n == 20 {
			want = `{"items":[],"count":0}`
		}
		if status, body, h := l.answer("POST"); strings.TrimSpace(body) != want ||
			h.Get("X-Request-Id") != fmt.Sprintf("pop-%d", n) {
			t.Fatalf("%d %s %v; want %s", status, body, h, want)
		}
	}
}

// holding is a store whose next transaction waits.
type holding struct {
	jobs.Store
	once           sync.Once
	begun, release chan struct{}
}

func (h *holding) Do(ctx context.Context, name string, operations ...jobs.Operation) ([]jobs.Result, error) {
	h.once.Do(func() {
		close(h.begun)
		<-h.release
	})
	return h.Store.Do(ctx, name, operations...)
}

// A client that disconnects before its turn has popped nothing. One that disconnects while its
// operation is in flight has, and the expiry of its lock makes the jobs ready again.
func TestClientsThatGoAway(t *testing.T) {
	store := &holding{Store: inMemory(t), begun: make(chan struct{}), release: make(chan struct{})}
	if _, err := store.Store.Do(t.Context(), "q", jobs.Push{Jobs: []jobs.NewJob{{Data: []byte("1")},
		{Data: []byte("2")}, {Data: []byte("3")}}}); err != nil {
		t.Fatal(err)
	}
	server, err := jobserver.New(store, jobserver.Config{Address: "127.0.0.1:0", Logger: silence})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	came, over := make(chan string, 3), make(chan string, 3)
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		came <- r.Header.Get("X-Request-Id")
		server.Handler().ServeHTTP(w, r)
		over <- r.Header.Get("X-Request-Id")
	}))
	defer h.Close()
	send := func(ctx context.Context, id string) <-chan error {
		r, err := http.NewRequestWithContext(ctx, "POST", h.URL+"/queue/q/pop", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Request-Id", id)
		sent := make(chan error, 1)
		go func() {
			a, err := http.DefaultClient.Do(r)
			if err == nil {
				defer a.Body.Close()
				var data []byte
				if data, err = io.ReadAll(a.Body); err == nil && !bytes.Contains(data, []byte(`"items":[2]`)) {
					err = fmt.Errorf("%d %s", a.StatusCode, data)
				}
			}
			sent <- err
		}()
		return sent
	}
	first, leaveFirst := context.WithCancel(t.Context())
	second, leaveSecond := context.WithCancel(t.Context())
	one := send(first, "in flight")
	<-store.begun
	two := send(second, "in line")
	for range 2 {
		<-came
	}
	leaveSecond()
	leaveFirst()
	for _, gone := range []<-chan error{one, two} {
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	three := send(t.Context(), "stays")
	for range 2 { // the server knows that they are gone
		<-over
	}
	close(store.release)
	if err := <-three; err != nil {
		t.Error(err)
	}
	i, err := store.Look(t.Context(), "q")
	if err != nil {
		t.Fatal(err)
	}
	if i.Depth() != 1 || i.Totals.Popped != 2 {
		t.Errorf("%d items are there, and %d were popped", i.Depth(), i.Totals.Popped)
	}
}

// TestShutdownWithAnIncompleteBody: a client that does not send its body neither holds up the
// shutdown nor makes an error of it.
func TestShutdownWithAnIncompleteBody(t *testing.T) {
	const post = "POST /queue/q/push HTTP/1.1\r\nHost: localhost\r\nContent-Length: 12\r\nExpect: 100-continue\r\n\r\n"
	for name, x := range map[string]struct {
		bodies, all time.Duration
		answered    bool
	}{
		"the body has a deadline":       {bodies: 10 * time.Millisecond, all: time.Minute, answered: true},
		"the connection has a deadline": {bodies: time.Minute, all: 10 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := jobserver.New(inMemory(t), jobserver.Config{Address: "127.0.0.1:0", Logger: silence})
			if err != nil {
				t.Fatal(err)
			}
			s.Hurry(time.Hour, time.Hour)
			s.HurryEnd(x.bodies, x.all)
			ctx, end := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- s.Run(ctx) }()
			l := dial(t, s, post)
			if line, err := l.in.ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") {
				t.Fatal(line, err) // the server reads the body when it sends this
			}
			end()
			if err := <-ended; err != nil {
				t.Errorf("the server has ended with %v", err)
			}
			if text := l.ends(); strings.Contains(text, `"TOO_SLOW"`) != x.answered {
				t.Errorf("the client got %q", text)
			}
		})
	}
}

// TestShutdownWhileTheDatabaseHangs: a transaction in flight does not end. The server ends all the
// same, within its shutdown timeout.
func TestShutdownWhileTheDatabaseHangs(t *testing.T) {
	store := &holding{Store: inMemory(t), begun: make(chan struct{}), release: make(chan struct{})}
	s, err := jobserver.New(store, jobserver.Config{Address: "127.0.0.1:0", Logger: silence,
		ShutdownTimeout: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	ended, answered := make(chan error, 1), make(chan struct{})
	go func() { ended <- s.Run(ctx) }()
	go func() {
		defer close(answered)
		if a, err := http.Post(s.URL()+"/queue/q/push", "application/json", strings.NewReader(`{"item": 1}`)); err == nil {
			a.Body.Close()
		}
	}()
	<-store.begun
	end()
	if err := <-ended; err != nil {
		t.Errorf("the server has ended with %v", err)
	}
	close(store.release)
	<-answered
}
