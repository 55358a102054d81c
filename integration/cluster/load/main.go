// Command load starts orders while a cluster changes under them, approves those that need an
// approval, and counts their outcomes. On SIGTERM it starts no more, waits for all that it has
// started, and exits with 1 if one of them has not completed.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/rondo-run/rondo/examples/orders/contract"
	"github.com/rondo-run/rondo/pkg/client"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

const (
	approvedEach  = 10               // one order in so many is expensive, and waits for an approval
	approvedAfter = 10 * time.Second // which takes so long
	completed     = "completed"
)

func main() {
	// only the outcome of orders is of interest
	urls := flag.String("nats", "", "the `addresses` of the servers")
	user := flag.String("user", "", "the user")
	password := flag.String("password", "", "its password")
	inboxPrefix := flag.String("inbox-prefix", "", "the prefix of the subjects of its answers")
	l := &load{states: make(map[string]int)}
	flag.StringVar(&l.prefix, "prefix", "load", "how the ids of orders begin")
	flag.IntVar(&l.most, "most", 30_000, "how many orders are started at most")
	rate := flag.Int("rate", 10, "how many are started in a second")
	patience := flag.Duration("patience", 5*time.Minute,
		"how long to wait for those that have not ended, after the last start")
	flag.Parse()
	opts := []client.Option{client.UserPassword(*user, *password), client.InboxPrefix(*inboxPrefix),
		client.Logger(slog.New(slog.DiscardHandler))}
	if err := l.run(*urls, opts, time.Second/time.Duration(*rate), *patience); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

// load has the instances that were started, and their states.
type load struct {
	prefix string
	most   int
	client *client.Client

	mu      sync.Mutex
	states  map[string]int
	took    []time.Duration // of instances without an approval
	retries int
}

func (l *load) run(urls string, opts []client.Option, each, patience time.Duration) (err error) {
	told, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if l.client, err = client.Connect(told, urls, opts...); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	began, tick := time.Now(), time.NewTicker(each)
	defer tick.Stop()
	var orders sync.WaitGroup
	n := 0
	for ; n < l.most && told.Err() == nil; n++ {
		i := n
		start := time.Now()
		orders.Go(func() { l.note(i, start, l.order(ctx, i)) })
		select {
		case <-tick.C:
		case <-told.Done():
		}
	}
	time.AfterFunc(patience, cancel)
	orders.Wait()
	return l.tell(n, time.Since(began))
}

// order starts an order, and returns the state in which it ends.
func (l *load) order(ctx context.Context, i int) string {
	id, order := fmt.Sprintf("%s-%d", l.prefix, i),
		contract.Order{SKU: "chair", Cents: 4500, Card: "1111", ShipTo: "Bremen"}
	if i%approvedEach == 0 {
		order.SKU, order.Cents = "piano", 900_000
	}
	for {
		h, err := contract.Fulfil.Start(ctx, l.client, order, orchestration.ID(id))
		if err == nil {
			ended := make(chan struct{})
			go l.approve(ctx, i, id, ended)
			receipt, err := h.Wait(ctx)
			close(ended)
			switch {
			case err != nil:
				return err.Error()
			case receipt.Tracking == "":
				return "without a parcel"
			}
			return completed
		}
		l.retried(err)
		if !pause(ctx, time.Second) {
			return "never started"
		}
	}
}

// approve approves an order that waits for it, again and again until it has ended: an event that
// comes before the order waits for it is dropped, and orders may be late.
func (l *load) approve(ctx context.Context, i int, id string, ended <-chan struct{}) {
	if i%approvedEach != 0 {
		return
	}
	tick := time.NewTicker(approvedAfter)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			// the next one is tried anyhow
			_ = contract.Approve.Raise(ctx, l.client, id, contract.Approval{By: "ann", OK: true})
		case <-ended:
			return
		}
	}
}

// pause waits, and reports whether there is still time.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

func (l *load) retried(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.retries++; l.retries <= 3 {
		fmt.Println("start:", err)
	}
}

func (l *load) note(i int, began time.Time, state string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.states[state]++
	if i%approvedEach != 0 {
		l.took = append(l.took, time.Since(began))
	}
}

func (l *load) tell(n int, d time.Duration) error {
	lost := n - l.states[completed]
	slices.Sort(l.took)
	at := func(share int) time.Duration {
		if len(l.took) == 0 {
			return 0
		}
		return l.took[(len(l.took)-1)*share/100].Round(time.Millisecond)
	}
	fmt.Printf("%d orders in %v: %v, lost %d; starts retried %d; p50 %v, p99 %v, max %v\n", n, d.Round(time.Second),
		l.states, lost, l.retries, at(50), at(99), at(100))
	if lost > 0 || n == 0 {
		return fmt.Errorf("%d of %d orders are not completed", lost, n)
	}
	return nil
}
