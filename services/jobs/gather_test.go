package jobserver_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/pkg/history/sqlite"
	jobserver "github.com/rondo-run/rondo/services/jobs"
)

// panicking is a store with a fault in it.
type panicking struct{ jobs.Store }

func (panicking) Do(context.Context, string, ...jobs.Operation) ([]jobs.Result, error) {
	panic("a fault")
}

// TestPanic: a fault in one request is answered, and the server goes on.
func TestPanic(t *testing.T) {
	s, end := serve(t, panicking{}, jobserver.Config{})
	defer end()
	for range 2 {
		s.post("/queue/q/push", `{"item": 1}`).is(500, map[string]any{"error_code": "INTERNAL"})
	}
}

// TestRemovingMuch: a removal that takes too long is done in parts, and the answer says so.
func TestRemovingMuch(t *testing.T) {
	db, err := sqlite.Open(t.Context(), sqlite.Memory, sqlite.Options{Log: silence})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	c := newClock()
	s, end := serve(t, slow{db.Queues(), c}, jobserver.Config{Now: c.now, Timeout: 10 * time.Second})
	defer end()
	items := strings.Repeat(`{"item": 1},`, 999) + `{"item": 1}`
	for range 2 {
		s.post("/queue/q/push", `{"items": [`+items+`]}`).is(200, nil)
	}
	r := s.ask("DELETE", "/queue/q", "").is(503, map[string]any{"error_code": "UNAVAILABLE"})
	if want := "1000 items are removed, and there are more: send the request again to go on"; r.string(
		"detail") != want {
		t.Errorf("%s", r.text)
	}
	s.ask("GET", "/queue/q/depth", "").is(200, map[string]any{"depth": 1000})
	s.ask("DELETE", "/queue/q", "").is(503, nil) // there might be more
	s.ask("DELETE", "/queue/q", "").is(200, map[string]any{"items_removed": 0})
}

// TestRemovingManyKeys: a removal of a queue with many idempotency keys that takes too long is done
// in parts, which the next request continues.
func TestRemovingManyKeys(t *testing.T) {
	db, err := sqlite.Open(t.Context(), sqlite.Memory, sqlite.Options{Log: silence})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	c := newClock()
	s, end := serve(t, slow{db.Queues(), c}, jobserver.Config{Now: c.now, Timeout: 10 * time.Second})
	defer end()
	for from := range 15 {
		var all []jobs.Operation
		for n := range 100 {
			all = append(all, jobs.Push{Key: fmt.Sprint(from, "-", n), KeyFor: time.Hour,
				Jobs: []jobs.NewJob{{Data: []byte("1")}}})
		}
		if _, err := db.Queues().Do(t.Context(), "q", append(all, jobs.Pop{Count: 100})...); err != nil {
			t.Fatal(err)
		}
	}
	r := s.ask("DELETE", "/queue/q", "").is(503, map[string]any{"error_code": "UNAVAILABLE"})
	if want := "0 items are removed, and there are idempotency keys and locks to remove: " +
		"send the request again to go on"; r.string("detail") != want {
		t.Errorf("%s", r.text)
	}
	s.ask("GET", "/queue/q/depth", "").is(200, map[string]any{"depth": 0})
	s.ask("DELETE", "/queue/q", "").is(200, map[string]any{"items_removed": 0})
	s.ask("DELETE", "/queue/q", "").is(404, nil)
}

// slow is a store whose transactions take a while.
type slow struct {
	jobs.Store
	clock *clock
}

func (s slow) Do(ctx context.Context, name string, ops ...jobs.Operation) ([]jobs.Result, error) {
	s.clock.move(11 * time.Second)
	return s.Store.Do(ctx, name, ops...)
}

// TestLargeRequestsAtOnce: the memory of bodies is bounded, and a client beyond the bound is told
// to retry.
func TestLargeRequestsAtOnce(t *testing.T) {
	s, end := serve(t, inMemory(t), jobserver.Config{})
	defer end()
	const clients = 17
	answers := make(chan string, clients)
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for range clients {
		all.Go(func() {
			for ctx.Err() == nil {
				// A client that reads later than half a second after its response may find the
				// connection reset, because it was still sending. A body may also come too slowly.
				if status := sendButOne(ctx, s.url); status != "" && !strings.Contains(status, "408") {
					answers <- status
					return
				}
			}
		})
	}
	if status := <-answers; !strings.Contains(status, "503") {
		t.Errorf("the first that is answered is told %q", status)
	}
}

// sendButOne sends a large request except for its last byte, and returns the first line of the
// response. That is empty if the connection or the context ends before it.
func sendButOne(ctx context.Context, url string) (status string) {
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		return ""
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	var sending sync.WaitGroup
	defer sending.Wait()
	sending.Go(func() { // an error means that the request was refused meanwhile
		_, _ = fmt.Fprintf(conn, "POST /queue/q/push HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s",
			jobserver.DefaultMaxBody, strings.Repeat(" ", jobserver.DefaultMaxBody-1))
	})
	status, _ = bufio.NewReader(conn).ReadString('\n')
	conn.Close() // ends the sending, too
	return status
}
