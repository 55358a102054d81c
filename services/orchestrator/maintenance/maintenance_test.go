package maintenance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
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
