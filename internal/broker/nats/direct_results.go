package natsbroker

import (
	"crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// directResults is the receiver's side of the direct delivery of results. It listens on one subject
// for all partitions that this process receives from, and gives each result to the receiver of its
// partition, which settles it AFTER it has committed it: so the worker acknowledges the task no
// earlier than by way of the stream. The orchestrator that is sent a result most often is the one
// that published its task.
type directResults struct {
	*conn
	partitions atomic.Int64 // the number of partitions as last seen; 0 before the first look

	mu          sync.Mutex
	sub         *nats.Subscription
	replyTo     string
	takers      map[int]*resultTaker // of the lane of results and timers, by partition
	place       uint64               // the last one
	deniedUntil time.Time            // until when nothing is offered, because answers are not allowed
}

// resultTaker accepts a directly delivered result, and returns outcomeOpen, or the outcome of its
// refusal.
type resultTaker func(d broker.Delivery) (refusal outcome)

// offer lets results for a partition come by direct delivery, as long as it is received from.
func (k *directResults) offer(partition int, take resultTaker) (stop func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.takers == nil {
		k.takers = make(map[int]*resultTaker)
	}
	k.takers[partition] = &take
	if k.sub == nil || !k.sub.IsValid() {
		subject := k.resultsSubject(rand.Text() + takesBundles)
		sub, err := k.nc.Subscribe(subject, k.hear)
		if err == nil { // otherwise the connection is closed
			_ = sub.SetPendingLimits(maxPendingDirect, maxPendingBytes)
			k.sub, k.replyTo = sub, subject
		}
	}
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.takers[partition] == &take {
			delete(k.takers, partition)
		}
	}
}

// offered is where results of tasks published now may be delivered directly; "" if nowhere.
func (k *directResults) offered() string {
	if k.isDenied() {
		return ""
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.takers) == 0 {
		return ""
	}
	return k.replyTo
}

// isDenied reports whether this user lacks the permission to answer, as far as is known.
func (k *directResults) isDenied() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return time.Now().Before(k.deniedUntil)
}

// deniedAnswer notes that something must not be published. If it was the answer to a result, the
// worker that sent the result waits in vain.
func (k *directResults) deniedAnswer(subject string) {
	if !k.isDirectAnswer(subject) {
		return
	}
	now := time.Now()
	k.mu.Lock()
	first := now.After(k.deniedUntil)
	k.deniedUntil = now.Add(avoidDenied)
	k.mu.Unlock()
	if first {
		k.log.Warn("NATS: this user has no permission to answer direct deliveries, so that all results and tasks come "+
			"through the streams, which takes longer; give it the permissions of deploy/nats", "subject", subject)
	}
}

// hear accepts directly delivered results, or refuses them at once.
func (k *directResults) hear(m *nats.Msg) {
	if !k.mayAnswerDirect(aboutResults, m) {
		return
	}
	count := m.Header[headerResults]
	if len(count) == 0 {
		w := events.Wire{Subject: strings.Clone(m.Header.Get(headerSubject))}
		delete(m.Header, headerSubject)
		w.Header, w.Body = kept(m)
		k.take(w, time.Now(), directResultHold{k.nc, m.Reply})
		return
	}
	results, err := readBundle(count[0], m.Data)
	if err != nil { // the number of results is unknown, so that no answer fits
		k.odd.results.do(func(dropped int) {
			k.log.Warn("NATS: directly delivered results cannot be read; their worker stores them", "error", err,
				"dropped", dropped)
		})
		directResultHold{k.nc, m.Reply}.say(outcomeNotHere)
		return
	}
	now := time.Now()
	all := newBundle(k.conn, m.Reply, len(results), "", now)
	for i, w := range results {
		k.take(w, now, bundledHold{all, i})
	}
}

// take accepts a result, or refuses it at once. With the shipped permissions, workers and
// orchestrators may have sent it: it must not be anything else than a result.
func (k *directResults) take(w events.Wire, now time.Time, h answered) {
	err := k.canTake(w.Subject)
	if err == nil && !k.isResult(w.Subject) {
		err = errors.New("it is none of a result")
	}
	if err != nil {
		k.odd.result.do(func(dropped int) {
			k.log.Warn("NATS: a result that cannot be taken", "error", fmt.Errorf("subject %q: %w", w.Subject, err),
				"dropped", dropped)
		})
		h.say(outcomeNotHere)
		return
	}
	d := broker.Delivery{Subject: w.Subject, Header: w.Header, Body: w.Body, Direct: true, NumDelivered: 1,
		StoredAt: now, Hold: h}
	partition := k.partitionOf(lastWord(d.Subject))
	k.mu.Lock()
	take := k.takers[partition]
	k.place++
	d.Sequence = firstDirect + k.place
	k.mu.Unlock()
	refusal := outcomeNotHere
	if take != nil {
		refusal = (*take)(d)
	}
	if refusal != outcomeOpen {
		h.say(refusal)
	}
}

// partitionOf computes the partition of an instance as the server does, from its token in subjects.
func (k *directResults) partitionOf(word string) int {
	n := k.partitions.Load()
	if n < 1 {
		return -1
	}
	h := fnv.New32a()
	h.Write([]byte(word))
	return int(h.Sum32() % uint32(n))
}
