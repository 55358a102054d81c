package maintenance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// flagBroker is a broker whose flag recovered cannot be read at first.
type flagBroker struct {
	Broker
	errs    []error // of the next reads
	repairs int
}

func (b *flagBroker) Get(context.Context, string) ([]byte, error) {
	if len(b.errs) == 0 {
		return []byte("true"), nil
	}
	err := b.errs[0]
	b.errs = b.errs[1:]
	return nil, err
}

func (b *flagBroker) Repair(context.Context) error { b.repairs++; return nil }

// A timeout is not taken for a loss: nothing is repaired, and no log says that something was
// missing.
func TestATimeoutIsNotALoss(t *testing.T) {
	for _, c := range []struct {
		err     error
		repairs int
	}{
		{fmt.Errorf("nats: read flag recovered: %w", context.DeadlineExceeded), 0},
		{errors.New("nats: bucket not found"), 1},
	} {
		var log bytes.Buffer
		b := &flagBroker{errs: []error{c.err}}
		k := &Keeper{broker: b, log: slog.New(slog.NewTextHandler(&log, nil))}
		err := k.recover(t.Context())
		if b.repairs != c.repairs || (err == nil) != (c.repairs == 1) ||
			strings.Contains(log.String(), "missing") != (c.repairs == 1) {
			t.Errorf("%v: %d repairs, %v, log %q", c.err, b.repairs, err, log.String())
		}
	}
}

// valueBroker keeps the flag recovered.
type valueBroker struct {
	Broker
	value []byte
}

func (b *valueBroker) Get(context.Context, string) ([]byte, error) { return b.value, nil }

func (b *valueBroker) Put(_ context.Context, _ string, value []byte, _ time.Duration) error {
	b.value = value
	return nil
}

// A recovery that a user asks for is not taken for a loss, unless something is lost before it
// begins.
func TestAnAskedRecoveryIsNotALoss(t *testing.T) {
	b := &valueBroker{value: []byte(recoveredValue)}
	k := &Keeper{broker: b, log: slog.New(slog.DiscardHandler)}
	asks := func(want bool) {
		t.Helper()
		if at, wasAsked, ok := parseLost(b.value); !ok || wasAsked != want || at.IsZero() {
			t.Errorf("%q is read as %v, asked: %t, %t", b.value, at, wasAsked, ok)
		}
		if at, err := k.lost(t.Context()); err != nil || at.IsZero() {
			t.Errorf("got %v, %v", at, err)
		}
	}
	if _, err := k.RecoverSoon(t.Context()); err != nil {
		t.Fatal(err)
	}
	asks(true)
	if err := k.LostSince(t.Context(), time.Now().Add(time.Hour)); err != nil { // it goes on with the earlier moment
		t.Fatal(err)
	}
	asks(true)
	if err := k.LostSince(t.Context(), time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	asks(false)
}
