package cockroach_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rondo-run/rondo/internal/pgfault"
	"github.com/rondo-run/rondo/internal/pgtest"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/history/cockroach"
	"github.com/rondo-run/rondo/pkg/history/historytest"
	"github.com/rondo-run/rondo/pkg/round"
)

// TestCommitsOfAllSizesOnOneConnection commits small and large batches on one connection, some of
// which the database refuses or does not answer to. Their parameters are put together in the same
// place, one after the other, and every byte of them must arrive.
func TestCommitsOfAllSizesOnOneConnection(t *testing.T) {
	pgtest.Need(t)
	b := newBench(t, cockroach.Options{Configure: func(c *pgxpool.Config) { c.MaxConns = 1 }})
	r := rand.New(rand.NewPCG(7, 7))
	sizes := []int{1, 2, 3, 10, 40, 200, 400}
	var all []*historytest.Actor
	for n := range 40 {
		var turns []*round.Turn
		for _, a := range all {
			if len(turns) < 100 && r.IntN(3) == 0 && a.Row.LastEvent < 20 {
				turns = append(turns, a.Note())
			}
		}
		for range sizes[r.IntN(len(sizes))] {
			a := historytest.NewActor(b.id())
			all = append(all, a)
			filling := strings.Repeat(string(rune('a'+r.IntN(26))), r.IntN(20))
			if r.IntN(50) == 0 {
				filling = strings.Repeat("large ", r.IntN(20_000))
			}
			turns = append(turns, historytest.Together(a.StartAndCall(),
				a.Say(&events.EventReceived{Wait: 1, Name: "x", Data: codec.Payload(fmt.Sprintf("%q", filling))})))
		}
		r.Shuffle(len(turns), func(i, j int) { turns[i], turns[j] = turns[j], turns[i] })
		switch n % 5 {
		case 1:
			b.inject(1, pgfault.FailBefore("40001", "restart transaction"))
		case 3:
			b.inject(1, pgfault.CutAfter)
		}
		batch := historytest.Batch(t, turns...)
		result, err := b.store.Commit(t.Context(), batch)
		if err != nil {
			t.Fatal(err)
		}
		if bad := slices.IndexFunc(result.Outcomes, func(o history.Outcome) bool {
			return o.Status != history.Committed
		}); bad >= 0 {
			t.Fatalf("batch %d: turn %d of %d: %+v", n, bad, len(turns), result.Outcomes[bad])
		}
	}
	ids := make([]string, len(all))
	for i, a := range all {
		ids[i] = a.ID
	}
	found, err := b.clear.Load(t.Context(), ids, func(string, round.Row) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range all {
		want := a.Events[1]
		same := func(x, y events.Event) bool {
			one, err1 := events.EncodeEvent(x)
			other, err2 := events.EncodeEvent(y)
			return err1 == nil && err2 == nil && string(one) == string(other)
		}
		if k := found[i]; k.Row.LastEvent != a.Row.LastEvent || !slices.EqualFunc(k.History, want, same) {
			t.Fatalf("%s is\n%+v\nwith %v, want %v", a.ID, k.Row, k.History, want)
		}
	}
	_, messages := b.stored(ids...)
	if len(messages) != len(all) {
		t.Errorf("%d messages are in the outbox, want %d", len(messages), len(all))
	}
	for subject, n := range messages {
		if n != 1 {
			t.Errorf("%s is in the outbox %d times", subject, n)
		}
	}
}
