package jobserver_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/internal/pgtest"
	"github.com/rondo-run/rondo/pkg/history/cockroach"
	jobserver "github.com/rondo-run/rondo/services/jobs"
)

// This file has many producers and consumers at work, with servers that are processes of their own
// and are killed, and consumers that crash between pop and acknowledge. Nothing may be lost, and
// nothing done twice.

// The variables that make the test's program a server.
const (
	serverVariable = "RONDO_TEST_QUEUE_DATABASE"
	clockVariable  = "RONDO_TEST_QUEUE_CLOCK"
)

// hurry is how much faster the clock of these servers is: the shortest lock is a second, which
// would be a long time for a test.
const hurry = 20

func TestMain(m *testing.M) {
	if address := os.Getenv(serverVariable); address != "" {
		if err := serveProcess(address); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// serveProcess serves a database until the standard input ends.
func serveProcess(address string) error {
	begun, err := strconv.ParseInt(os.Getenv(clockVariable), 10, 64)
	if err != nil {
		return err
	}
	base := time.Unix(0, begun)
	db, err := cockroach.Open(context.Background(), address, cockroach.Options{Log: silence, Now: func() time.Time {
		return base.Add(hurry * time.Since(base))
	}})
	if err != nil {
		return err
	}
	defer db.Close()
	s, err := jobserver.New(db.Queues(), jobserver.Config{Address: "127.0.0.1:0", Logger: silence})
	if err != nil {
		return err
	}
	fmt.Println(s.URL())
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until the process that has started this one ends
		stop()
	}()
	return s.Run(ctx)
}

// serverProcess is a server in a process of its own.
type serverProcess struct {
	t       testing.TB
	address string
	begun   time.Time

	mu  sync.Mutex
	cmd *exec.Cmd
	in  io.Closer
	url string
}

func (p *serverProcess) start() {
	p.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), serverVariable+"="+p.address,
		clockVariable+"="+strconv.FormatInt(p.begun.UnixNano(), 10))
	cmd.Stderr = os.Stderr
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		p.t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		p.t.Fatalf("the server does not start: %v", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cmd, p.in, p.url = cmd, in, strings.TrimSpace(line)
}

func (p *serverProcess) where() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.url
}

// kill ends it as kill -9 does.
func (p *serverProcess) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // it was killed
}

// work is what producers and consumers have done.
type work struct {
	t       *testing.T
	mode    jobs.Mode
	servers []*serverProcess
	client  *http.Client

	mu       sync.Mutex
	more     *sync.Cond // something was acknowledged, or has gone wrong
	pushed   map[numbered]bool
	done     map[numbered]int // how often its acknowledgement was answered with 200
	when     map[numbered]int // the number of that acknowledgement
	acks     int
	doubtful map[numbered]bool
	last     map[line]int // the last one that was acknowledged of a producer and a priority
	left     atomic.Int64 // producers that are not done

	crashes, expired, unanswered, locked atomic.Int64
}

// numbered is a job, line those of one producer and priority.
type numbered struct{ Producer, Priority, Number int }

type line struct{ producer, priority int }

// request sends a request to any of the servers. An error means that the outcome is unknown.
func (w *work) request(path string, header map[string]string, body any, into any) (status int, err error) {
	data, err := json.Marshal(body)
	if err != nil {
		return 0, err
	}
	r, err := http.NewRequest(http.MethodPost, w.servers[rand.IntN(len(w.servers))].where()+"/queue/work/"+path,
		bytes.NewReader(data))
	if err != nil {
		return 0, err
	}
	for name, value := range header {
		r.Header.Set(name, value)
	}
	answer, err := w.client.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err
	}
	if answer.StatusCode == http.StatusServiceUnavailable {
		return 0, fmt.Errorf("%s", text)
	}
	if answer.StatusCode == http.StatusOK && into != nil {
		err = json.Unmarshal(text, into)
	}
	return answer.StatusCode, err
}

// produce pushes jobs in batches, each until it is known to be there.
func (w *work) produce(producer, count int) {
	defer w.left.Add(-1)
	next := make(map[int]int)
	for sent := 0; sent < count; {
		type item struct {
			Item     numbered `json:"item"`
			Priority int      `json:"priority"`
		}
		var items []item
		for range min(1+rand.IntN(5), count-sent) {
			p := rand.IntN(3)
			next[p]++
			items = append(items, item{numbered{producer, p, next[p]}, p})
		}
		sent += len(items)
		key := fmt.Sprintf("%d-%d", producer, sent)
		for {
			status, err := w.request("push", map[string]string{"Idempotency-Key": key},
				map[string]any{"items": items}, nil)
			if err == nil && status == http.StatusOK {
				break
			}
			if err == nil {
				w.t.Errorf("push: %d", status)
				return
			}
			w.unanswered.Add(1)
		}
		w.mu.Lock()
		for _, i := range items {
			w.pushed[i.Item] = true
		}
		w.mu.Unlock()
	}
}

// consume pops with locks and acknowledges, until all producers are done and nothing is left.
func (w *work) consume() {
	for {
		var p struct {
			Items  []numbered `json:"items"`
			LockID string     `json:"lock_id"`
		}
		ending, before := w.left.Load() == 0, w.acknowledged()
		status, err := w.request(fmt.Sprintf("pop?require_ack=true&ttl_seconds=2&mode=%s&count=%d", w.mode,
			1+rand.IntN(8)), nil, nil, &p)
		switch {
		case err != nil:
			w.unanswered.Add(1)
			continue
		case status == http.StatusLocked:
			w.locked.Add(1)
			continue
		case status != http.StatusOK:
			w.t.Errorf("pop: %d", status)
			return
		case len(p.Items) == 0:
			if ending && w.allDone() {
				return
			}
			continue
		}
		w.popped(p.Items, before)
		if rand.IntN(10) == 0 { // it crashes, and the lock is left to its time
			w.crashes.Add(1)
			continue
		}
		w.acknowledge(p.LockID, p.Items)
	}
}

// acknowledged counts the acknowledgements so far.
func (w *work) acknowledged() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.acks
}

// popped checks that no job is popped whose acknowledgement was answered before the request for
// the pop, and that the popped jobs are in order.
func (w *work) popped(items []numbered, acks int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := make(map[line]int)
	priority := 0
	for _, i := range items {
		if w.done[i] > 0 && w.when[i] <= acks {
			w.t.Errorf("%+v comes again after its acknowledgement", i)
		}
		l := line{i.Producer, i.Priority}
		if i.Priority < priority || i.Number <= before[l] {
			w.t.Errorf("not in order: %+v", items)
		}
		priority, before[l] = i.Priority, i.Number
	}
}

func (w *work) acknowledge(lock string, items []numbered) {
	w.mu.Lock()
	defer w.mu.Unlock() // no check may run between the answer and the note of it
	defer w.more.Broadcast()
	status, err := w.request("acknowledge", nil, map[string]string{"lock_id": lock}, nil)
	switch {
	case err != nil:
		w.unanswered.Add(1)
		for _, i := range items {
			w.doubtful[i] = true
		}
	case status == http.StatusOK:
		w.acks++
		for _, i := range items {
			w.done[i]++
			w.when[i] = w.acks
			if l := (line{i.Producer, i.Priority}); w.mode == jobs.Exclusive {
				if i.Number <= w.last[l] {
					w.t.Errorf("%+v is acknowledged after number %d", i, w.last[l])
				}
				w.last[l] = i.Number
			}
		}
	case status == http.StatusGone, status == http.StatusNotFound, status == http.StatusBadRequest: // it took too long
		w.expired.Add(1)
	default:
		w.t.Errorf("acknowledge: %d", status)
	}
}

// allDone reports whether each job is acknowledged, or may be.
func (w *work) allDone() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.pushed {
		if w.done[i] == 0 && !w.doubtful[i] {
			return false
		}
	}
	return true
}

func TestCrashes(t *testing.T) {
	pgtest.Need(t)
	for _, mode := range []jobs.Mode{jobs.Exclusive, jobs.Concurrent} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			crashes(t, mode)
		})
	}
}

func crashes(t *testing.T, mode jobs.Mode) {
	const producers, consumers, each = 8, 8, 100
	address, begun := pgtest.Database(t), time.Now()
	w := &work{
		t: t, mode: mode, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32},
			Timeout: 10 * time.Second},
		pushed: make(map[numbered]bool), done: make(map[numbered]int), when: make(map[numbered]int),
		doubtful: make(map[numbered]bool), last: make(map[line]int),
	}
	w.more = sync.NewCond(&w.mu)
	for range 2 {
		p := &serverProcess{t: t, address: address, begun: begun}
		p.start()
		t.Cleanup(p.kill)
		w.servers = append(w.servers, p)
	}
	w.left.Store(producers)
	var all sync.WaitGroup
	for n := range producers {
		all.Go(func() { w.produce(n, each) })
	}
	for range consumers {
		all.Go(w.consume)
	}
	// Servers are killed when a part of the work is done.
	for n := range 4 {
		w.awaitDone(producers * each * (n + 1) / 6)
		p := w.servers[n%2]
		p.kill()
		p.start()
	}
	all.Wait()
	if len(w.pushed) != producers*each {
		t.Errorf("%d items were pushed, want %d", len(w.pushed), producers*each)
	}
	for i := range w.pushed {
		if n := w.done[i]; n > 1 || n == 0 && !w.doubtful[i] {
			t.Errorf("%+v was acknowledged %d times", i, n)
		}
	}
	// All locks are over an hour later.
	db, err := cockroach.Open(t.Context(), address, cockroach.Options{Log: silence, Now: func() time.Time {
		return begun.Add(hurry*time.Since(begun) + time.Hour)
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	info, err := db.Queues().Look(t.Context(), "work")
	if err != nil {
		t.Fatal(err)
	}
	// An acknowledgement without an answer may have been lost: then its jobs are still there.
	for rest := info.Depth(); rest > 0; rest-- {
		r, err := db.Queues().Do(t.Context(), "work", jobs.Pop{Count: 1, Mode: jobs.Concurrent})
		if err != nil || r[0].Refused != nil || len(r[0].Items) != 1 {
			t.Fatalf("%v %+v", err, r)
		}
		var i numbered
		if err := json.Unmarshal(r[0].Items[0].Data, &i); err != nil || w.done[i] > 0 || !w.doubtful[i] {
			t.Errorf("%s is left: %v", r[0].Items[0].Data, err)
		}
	}
	if info.Totals.Pushed != producers*each {
		t.Errorf("%d items were pushed in all, want %d", info.Totals.Pushed, producers*each)
	}
	t.Logf("%s: %d consumers crashed, %d acknowledgements came too late, %d items expired, %d requests had no "+
		"answer, %d pops found it locked",
		mode, w.crashes.Load(), w.expired.Load(), info.Totals.Expired, w.unanswered.Load(), w.locked.Load())
	if w.crashes.Load() == 0 || info.Totals.Expired == 0 || w.unanswered.Load() == 0 {
		t.Error("nothing happened that this test is about")
	}
}

// awaitDone waits until so many jobs are acknowledged.
func (w *work) awaitDone(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.done) < n && !w.t.Failed() {
		w.more.Wait()
	}
}
