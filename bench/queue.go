package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// This file is W11: queues over HTTP, with an orchestrator that serves them.

// queueClient talks to a queue as any program would.
type queueClient struct {
	http *http.Client
	url  string // of the queue
}

func (r *run) newQueueClient(name string) *queueClient {
	const most = 64
	return &queueClient{http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: most}, Timeout: patience},
		url: r.orchestrators[0].found.Queues + "/queue/" + name}
}

func (q *queueClient) close() { q.http.CloseIdleConnections() }

// pops is the answer to a pop.
type pops struct {
	Items  []json.RawMessage `json:"items"`
	LockID string            `json:"lock_id"`
}

// post sends a request that must be answered with 200, or with one of others.
func (q *queueClient) post(ctx context.Context, path string, body, into any) error {
	var data bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&data).Encode(body); err != nil {
			return err
		}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, q.url+path, &data)
	if err != nil {
		return err
	}
	answer, err := q.http.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("POST %s: %s: %s", path, answer.Status, text)
	}
	if err == nil && into != nil {
		err = json.Unmarshal(text, into)
	}
	return err
}

// queueItem is an item of about 100 bytes.
type queueItem struct {
	Item struct {
		Number int64  `json:"number"`
		Data   string `json:"data"`
	} `json:"item"`
}

func (q *queueClient) push(ctx context.Context, from int64, count int) error {
	var body struct {
		Items []queueItem `json:"items"`
	}
	for n := range count {
		var i queueItem
		i.Item.Number, i.Item.Data = from+int64(n), hundredBytes(int(from)+n)
		body.Items = append(body.Items, i)
	}
	return q.post(ctx, "/push", body, nil)
}

func (q *queueClient) pop(ctx context.Context, query string) (p pops, err error) {
	return p, q.post(ctx, "/pop?"+query, nil, &p)
}

func (q *queueClient) acknowledge(ctx context.Context, lock string) error {
	return q.post(ctx, "/acknowledge", map[string]string{"lock_id": lock}, nil)
}

// queueing are the variants of W11.
func queueing() []variant {
	list := []variant{{name: "one at a time", needs: needs{queues: true}, run: queueAlone}}
	for _, batch := range []int{1, 10, 100} {
		list = append(list, variant{name: fmt.Sprintf("8 and 8, batches of %d", batch), needs: needs{queues: true},
			run: func(ctx context.Context, r *run) error {
				return r.queueFlow(ctx, batch)
			}})
	}
	return list
}

// queueAlone measures how long each request takes without other load, and thus the cost of a lock
// beyond that of a pop without one.
func queueAlone(ctx context.Context, r *run) error {
	q := r.newQueueClient("alone")
	defer q.close()
	steps := []struct {
		name string
		took []time.Duration
	}{{name: "push"}, {name: "pop"}, {name: "pop_with_ack"}, {name: "acknowledge"}, {name: "pop_after_expiry"}}
	timed := func(n int, do func() error) error {
		begun := time.Now()
		err := do()
		steps[n].took = append(steps[n].took, time.Since(begun))
		return err
	}
	once := func() error {
		var p pops
		err := timed(0, func() error { return q.push(ctx, 0, 1) })
		if err == nil {
			err = timed(1, func() (err error) { p, err = q.pop(ctx, ""); return err })
		}
		if err == nil && len(p.Items) != 1 {
			err = fmt.Errorf("a pop gave %d items", len(p.Items))
		}
		if err == nil {
			err = q.push(ctx, 0, 1)
		}
		if err == nil {
			err = timed(2, func() (err error) { p, err = q.pop(ctx, "require_ack=true"); return err })
		}
		if err == nil {
			err = timed(3, func() error { return q.acknowledge(ctx, p.LockID) })
		}
		return err
	}
	for range pick(r, 5, 100, 200) {
		if err := once(); err != nil {
			return err
		}
	}
	for n := range steps {
		steps[n].took = nil
	}
	err := r.measure(ctx, func() (int, error) {
		n := pick(r, 20, 1000, 3000)
		for range n {
			if err := once(); err != nil {
				return 0, err
			}
		}
		return n, nil
	})
	if err == nil {
		err = r.queueExpiry(ctx, q, func(do func() error) error { return timed(4, do) })
	}
	for _, s := range steps {
		sorted := milliseconds(s.took)
		r.result.Figures[s.name+"_p50_ms"], r.result.Figures[s.name+"_p99_ms"] = rounded(percentile(sorted, 0.5), 3),
			rounded(percentile(sorted, 0.99), 3)
	}
	f := r.result.Figures
	f["require_ack_adds_ms"] = rounded(f["pop_with_ack_p50_ms"]-f["pop_p50_ms"], 3)
	r.result.Compared = "pop_with_ack_p50_ms"
	return err
}

// queueExpiry measures pops that find locks that have expired: their items go back first. Each has
// a queue of its own, and all expire together.
func (r *run) queueExpiry(ctx context.Context, q *queueClient, timed func(func() error) error) error {
	queues := make([]*queueClient, pick(r, 3, 50, 200))
	for n := range queues {
		queues[n] = &queueClient{http: q.http, url: fmt.Sprintf("%s-%d", q.url, n)}
		if err := queues[n].push(ctx, 0, 1); err != nil {
			return err
		}
		if _, err := queues[n].pop(ctx, "require_ack=true&ttl_seconds=1"); err != nil {
			return err
		}
	}
	select {
	case <-time.After(1100 * time.Millisecond):
	case <-ctx.Done():
		return ctx.Err()
	}
	for _, each := range queues {
		if err := timed(func() error {
			p, err := each.pop(ctx, "")
			if err == nil && len(p.Items) != 1 {
				err = errors.New("what has expired did not come back")
			}
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// queueFlow has 8 push and 8 pop with locks and acknowledge, for a while. What counts are items
// that are acknowledged; each must be there once.
func (r *run) queueFlow(ctx context.Context, batch int) error {
	const producers, consumers = 8, 8
	q := r.newQueueClient("flow")
	defer q.close()
	window := r.window(200*time.Millisecond, 5*time.Second, 20*time.Second)
	ctx, cancel := context.WithTimeoutCause(ctx, window+patience, errors.New("the queue does not become empty"))
	defer cancel()
	var pushed, done atomic.Int64
	var seen sync.Map
	err := r.measure(ctx, func() (int, error) {
		until, ended := time.Now().Add(window), make(chan struct{})
		errs := make(chan error, producers+consumers)
		var pushing, popping sync.WaitGroup
		for range producers {
			pushing.Go(func() {
				for time.Now().Before(until) {
					// Not without bound: what counts goes through the queue.
					if pushed.Load()-done.Load() > int64(50*producers*batch) {
						time.Sleep(time.Millisecond)
						continue
					}
					from := pushed.Add(int64(batch)) - int64(batch)
					if err := q.push(ctx, from, batch); err != nil {
						errs <- err
						return
					}
				}
			})
		}
		for range consumers {
			popping.Go(func() {
				for {
					p, err := q.pop(ctx, fmt.Sprintf("require_ack=true&mode=concurrent&count=%d", batch))
					if err == nil && len(p.Items) > 0 {
						err = noteItems(&seen, p.Items)
					}
					if err == nil && len(p.Items) > 0 {
						err = q.acknowledge(ctx, p.LockID)
					}
					if err != nil {
						errs <- err
						return
					}
					done.Add(int64(len(p.Items)))
					if len(p.Items) > 0 {
						continue
					}
					select {
					case <-ended:
						return
					default:
						time.Sleep(time.Millisecond)
					}
				}
			})
		}
		pushing.Wait()
		close(ended)
		popping.Wait()
		close(errs)
		var all error
		for err := range errs {
			all = errors.Join(all, err)
		}
		return int(done.Load()), all
	})
	if err == nil && done.Load() != pushed.Load() {
		err = fmt.Errorf("%d items were pushed, and %d acknowledged", pushed.Load(), done.Load())
	}
	return err
}

// noteItems notes items that were popped. None may come twice: no lock is given up here.
func noteItems(seen *sync.Map, items []json.RawMessage) error {
	for _, i := range items {
		var item struct {
			Number int64 `json:"number"`
		}
		if err := json.Unmarshal(i, &item); err != nil {
			return err
		}
		if _, twice := seen.LoadOrStore(item.Number, true); twice {
			return fmt.Errorf("item %d was popped twice", item.Number)
		}
	}
	return nil
}
