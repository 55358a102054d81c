package integration_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rondo-run/rondo/integration/internal/work"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/services/orchestrator"
)

// aBank is an account that reads mailbox messages and continues as new after three of them, and a
// sender of one message.
func aBank() []orchestration.Binding {
	account := orchestration.Define[int, int]("account")
	sender := orchestration.Define[int, int]("sender")
	return []orchestration.Binding{
		account.Bind(func(ctx *orchestration.Context, balance int) (int, error) {
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
		sender.Bind(func(ctx *orchestration.Context, amount int) (int, error) {
			return amount, work.Letters.SendFrom(ctx, "account", amount)
		}),
	}
}

const toTheAccount = "rondo.internal_mailbox.letters.account"

func toAccount(id, amount string) events.Message {
	content := &events.MailboxMessage{Mailbox: work.Letters.Name(), Data: codec.Payload(amount)}
	return events.Message{ID: id, Instance: "account", Sent: time.Now(), Content: content}
}

// `letters` sends n messages without effect, enough for the account to forget the earlier ones.
func (s *system) letters(from, n int) {
	for i := range n {
		s.say(toAccount(fmt.Sprint("letter-", from+i), "0"))
	}
}

// balance makes the account end, and returns its balance.
func (s *system) balance() string {
	s.say(toAccount("close", "-1"))
	return string(s.ended("account").Output)
}

// published calls told for each message that an orchestrator has published for the account.
func published(told func(id string)) func([]events.Wire) {
	return func(all []events.Wire) {
		for _, w := range all {
			if w.Subject == toTheAccount {
				told(w.Header[events.HeaderMsgID][0])
			}
		}
	}
}

// TestAMailboxMessageThatIsSweptIsTakenOnce: the orchestrator is killed after it has published a
// mailbox message, and before it has deleted the message's outbox entry. A sweep publishes the
// message once more, when neither the broker nor the execution of the account remembers it.
func TestAMailboxMessageThatIsSweptIsTakenOnce(t *testing.T) {
	t.Parallel()
	s := newSystem(t, openSQLite(t), aBank()...)
	few := func(c *orchestrator.Config) {
		// The broker's window for duplicates is 10 seconds.
		c.Round.Remembered, c.Sweep.OutboxAfter, c.Sweep.Every = 2, 12*time.Second, time.Second
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

// TestAMailboxMessageIsRemovedAfterAFailedCommit: the commit that was to delete an outbox entry
// fails. Another commit deletes it: nothing is published again.
func TestAMailboxMessageIsRemovedAfterAFailedCommit(t *testing.T) {
	t.Parallel()
	s := newSystem(t, openSQLite(t), aBank()...)
	var mu sync.Mutex
	times := make(map[string]int) // how often each mailbox message was published
	var failed atomic.Bool
	v := s.prepare(func(c *orchestrator.Config) { c.Sweep.OutboxAfter, c.Sweep.Every = 5*time.Second, time.Second })
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
	s.reaches("account", events.KindMailboxRead)
	for i := 0; i < 1 || !failed.Load(); i++ {
		// the commit of the next one deletes the outbox entry of this one, if it comes soon
		id := fmt.Sprint("sender-", i)
		s.start("sender", id, 1)
		s.ended(id)
	}
	s.letters(0, 4)
	s.eventually("the outbox is empty", func() error {
		n, err := s.store.CountOutbox(t.Context(), 10)
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
