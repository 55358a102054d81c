package integration_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rondo-run/rondo/integration/internal/work"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/services/orchestrator"
)

// aBank is an account that takes letters and continues as new after three of them, and somebody who
// sends it one.
func aBank() []orchestration.Binding {
	account := orchestration.Define[int, int]("account")
	sender := orchestration.Define[int, int]("sender")
	return []orchestration.Binding{
		account.With(func(ctx *orchestration.Context, balance int) (int, error) {
			for range 3 {
				x, err := work.Letters.Receive(ctx)
				switch {
				case err != nil:
					return 0, err
				case x < 0:
					return balance, nil
				}
				balance += x
			}
			return account.ContinueAsNew(ctx, balance)
		}),
		sender.With(func(ctx *orchestration.Context, amount int) (int, error) {
			return amount, work.Letters.Send(ctx, "account", amount)
		}),
	}
}

const toTheAccount = "rondo.internal_queue.letters.account"

func toAccount(id, amount string) events.Message {
	content := &events.QueueSent{Queue: work.Letters.Name(), Data: events.Payload(amount)}
	return events.Message{ID: id, Instance: "account", Sent: time.Now(), Content: content}
}

// letters sends letters that change nothing, so many that the account forgets what was before.
func (s *system) letters(from, n int) {
	for i := range n {
		s.say(toAccount(fmt.Sprint("letter-", from+i), "0"))
	}
}

// balance has the account tell what it has.
func (s *system) balance() string {
	s.say(toAccount("close", "-1"))
	return string(s.ended("account").Output)
}

// published tells of messages that an orchestrator has published for the account.
func published(told func(id string)) func([]events.Wire) {
	return func(all []events.Wire) {
		for _, w := range all {
			if w.Subject == toTheAccount {
				told(w.Header[events.HeaderMsgID][0])
			}
		}
	}
}

// The orchestrator is killed after it has published a letter, and before it has removed that from
// the outbox. A sweep sends it once more, when neither the broker nor the execution of the account
// knows it any more.
func TestALetterThatIsSweptIsTakenOnce(t *testing.T) {
	t.Parallel()
	s := newSystem(t, openSQLite(t), aBank()...)
	few := func(c *orchestrator.Config) {
		// The broker's window for duplicates is 10 seconds.
		c.Round.Remembered, c.PromiseAfter, c.SweepEvery = 2, 12*time.Second, time.Second
	}
	killed, swept := make(chan struct{}), make(chan struct{})
	first := s.prepare(few)
	die := sync.OnceFunc(func() {
		first.kill()
		close(killed)
	})
	first.broker.afterPublish = published(func(string) { die() })
	first.start()
	s.start("account", "account", 0)
	s.start("sender", "sender", 100) // 100 for the account, once
	s.await(killed, "the orchestrator is killed")
	second := s.prepare(few)
	tell := sync.OnceFunc(func() { close(swept) })
	second.broker.afterPublish = published(func(string) { tell() })
	second.start()
	s.letters(0, 20)
	s.await(swept, "the letter is sent again")
	s.letters(20, 1)
	if has := s.balance(); has != "100" {
		t.Errorf("the account has %s: it was sent 100 once", has)
	}
}

// The commit that was to remove a letter from the outbox fails. Another one removes it: nothing is
// sent again.
func TestALetterIsRemovedAfterAFailedCommit(t *testing.T) {
	t.Parallel()
	s := newSystem(t, openSQLite(t), aBank()...)
	var mu sync.Mutex
	times := make(map[string]int) // how often each letter was published
	var failed atomic.Bool
	v := s.prepare(func(c *orchestrator.Config) { c.PromiseAfter, c.SweepEvery = 5*time.Second, time.Second })
	v.broker.afterPublish = published(func(id string) {
		mu.Lock()
		defer mu.Unlock()
		times[id]++
	})
	v.store.before = func(b history.Batch) error {
		if len(b.Published) > 0 && !failed.Swap(true) {
			away := errors.New("the database was away for a moment")
			return &history.Error{Class: history.Retry, Op: "commit", Err: away}
		}
		return nil
	}
	v.start()
	s.start("account", "account", 0)
	s.reaches("account", events.KindQueueRead)
	for i := 0; i < 1 || !failed.Load(); i++ {
		// the commit of the next one removes the letter of this one, if it comes soon
		id := fmt.Sprint("sender-", i)
		s.start("sender", id, 1)
		s.ended(id)
	}
	s.letters(0, 4)
	s.eventually("the outbox is empty", func() error {
		n, err := s.store.CountPromises(t.Context(), 10)
		if err == nil && n > 0 {
			err = fmt.Errorf("%d entries are in it", n)
		}
		return err
	})
	mu.Lock()
	defer mu.Unlock()
	for id, n := range times {
		if n != 1 {
			t.Errorf("letter %s was published %d times", id, n)
		}
	}
	if has, want := s.balance(), fmt.Sprint(len(times)); has != want {
		t.Errorf("the account has %s, want %s", has, want)
	}
}
