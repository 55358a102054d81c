package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/rondotest"
)

var (
	chairs = Order{Items: []Item{{"chair", 4}, {"table", 1}}, Cents: 45_000, Card: "1111", Address: "Bremen"}
	piano  = Order{Items: []Item{{"piano", 1}, {"stool", 1}}, Cents: 900_000, Card: "1111", Address: "Bremen"}
)

// world runs the program in virtual time, and replays it before every round, as after a restart.
type world struct {
	*rondotest.Env
	order orchestration.Handle[Receipt]
}

func start(t *testing.T, o Order) world {
	t.Helper()
	w := world{Env: rondotest.New(t, append(slices.Clone(parts), rondotest.Cold())...)}
	var err error
	if w.order, err = Fulfil.Start(t.Context(), w, o, orchestration.ID("order-1")); err != nil {
		t.Fatal(err)
	}
	return w
}

// wait waits for the end, and compares the activities in their order.
func (w world) wait(t *testing.T, done ...string) (Receipt, error) {
	t.Helper()
	receipt, err := w.order.Wait(t.Context())
	var did []string
	for _, e := range w.History(w.order.ID) {
		if a, ok := e.Fact.(*events.ActivityScheduled); ok {
			did = append(did, a.Name)
		}
	}
	if !slices.Equal(did, done) {
		t.Errorf("done was %q, want %q", did, done)
	}
	return receipt, err
}

func (w world) approve(t *testing.T) {
	t.Helper()
	if err := Approvals.Send(t.Context(), w, w.order.ID, "ann"); err != nil {
		t.Fatal(err)
	}
}

func (w world) wantStatus(t *testing.T, want string) {
	t.Helper()
	if got, _, err := Progress.Read(t.Context(), w.Env, w.order.ID); err != nil || got != want {
		t.Errorf("its status is %q, want %q", got, want)
	}
}

func TestSmallOrderNeedsNoApproval(t *testing.T) {
	receipt, err := start(t, chairs).wait(t, "reserve", "reserve", "charge", "ship")
	if err != nil || !strings.HasPrefix(receipt.Payment, "payment-") ||
		!strings.HasPrefix(receipt.Tracking, "parcel-") {
		t.Errorf("%+v, %v", receipt, err)
	}
}

// TestItemsAreReservedAtTheSameTime: all are asked for before the first answer comes.
func TestItemsAreReservedAtTheSameTime(t *testing.T) {
	w := start(t, chairs)
	w.Settle()
	kinds := w.Kinds(w.order.ID)
	asked, answered := slices.Index(kinds, events.KindActivityScheduled),
		slices.Index(kinds, events.KindActivityCompleted)
	if got := answered - asked; got != len(chairs.Items) {
		t.Errorf("%d were asked for before the first answer, want %d: %v", got, len(chairs.Items), kinds)
	}
}

func TestApprovalIsGiven(t *testing.T) {
	w := start(t, piano)
	w.Advance(23 * time.Hour)
	w.wantStatus(t, "waiting for approval")
	w.approve(t)
	if _, err := w.wait(t, "reserve", "reserve", "charge", "ship"); err != nil {
		t.Error(err)
	}
	w.wantStatus(t, "shipping")
}

// TestApprovalMayComeEarly: before the goods are reserved.
func TestApprovalMayComeEarly(t *testing.T) {
	w := start(t, piano)
	began := w.Now()
	w.approve(t)
	if _, err := w.wait(t, "reserve", "reserve", "charge", "ship"); err != nil {
		t.Error(err)
	}
	if took := w.Now().Sub(began); took > time.Hour {
		t.Errorf("it took %v", took)
	}
}

func TestApprovalIsMissing(t *testing.T) {
	w := start(t, piano)
	began := w.Now()
	if _, err := w.wait(t, "reserve", "reserve"); !errors.Is(err, orchestration.ErrTimeout) {
		t.Error(err)
	}
	if took := w.Now().Sub(began); took < 24*time.Hour || took > 25*time.Hour {
		t.Errorf("it ended after %v", took)
	}
}

func TestShippingFails(t *testing.T) {
	o := chairs
	o.Address = "nowhere"
	_, err := start(t, o).wait(t, "reserve", "reserve", "charge", "ship", "ship", "ship", "refund")
	if err == nil || !strings.Contains(err.Error(), "there is no way to nowhere") {
		t.Error(err)
	}
}

func TestCancelledWhileShipping(t *testing.T) {
	o := chairs
	o.Address = "nowhere" // so that it is tried again, after a while
	w := start(t, o)
	w.Settle()
	w.wantStatus(t, "shipping")
	if err := w.order.Cancel(t.Context(), "no longer wanted"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.wait(t, "reserve", "reserve", "charge", "ship", "ship", "refund"); !errors.Is(err,
		orchestration.ErrCancelled) {
		t.Error(err)
	}
}

func TestDeclinedCardIsNotTriedAgain(t *testing.T) {
	o := chairs
	o.Card = "declined"
	if _, err := start(t, o).wait(t, "reserve", "reserve", "charge"); err == nil ||
		!strings.Contains(err.Error(), errDeclined.Error()) {
		t.Error(err)
	}
}

// TestDocument: docs/comparison.md shows the code as it is.
func TestDocument(t *testing.T) {
	document, err := os.ReadFile(filepath.Join("..", "..", "docs", "comparison.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []struct{ file, from string }{{"shop.go", "// Order is what"},
		{"fulfil.go", "// The definitions:"}} {
		code, err := os.ReadFile(part.file)
		if err != nil {
			t.Fatal(err)
		}
		_, after, ok := strings.Cut(string(code), part.from)
		if shown := fmt.Sprintf("%s%s```\n", part.from, after); !ok || !strings.Contains(string(document), shown) {
			t.Errorf("docs/comparison.md does not show %s as it is, from %q to its end: copy it there",
				part.file, part.from)
		}
	}
}
