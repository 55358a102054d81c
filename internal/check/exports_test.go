package check_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/rondo-run/rondo/internal/check"
	"github.com/rondo-run/rondo/internal/racetest"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
	"github.com/rondo-run/rondo/pkg/round"
)

// exportsOf sorts exported histories of instances, in a random order.
func exportsOf(t *testing.T, all ...check.Instance) *check.Exports {
	t.Helper()
	var documents [][]byte
	for _, in := range all {
		for x, h := range in.History {
			data, err := json.Marshal(events.Export{Instance: in.ID, Execution: x, Events: h})
			if err != nil {
				t.Fatal(err)
			}
			documents = append(documents, data)
		}
	}
	rand.Shuffle(len(documents), func(i, j int) { documents[i], documents[j] = documents[j], documents[i] })
	dir := t.TempDir()
	x := check.NewExports(dir)
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%v is left behind (%v)", left, err)
		}
	})
	if n, err := x.Add(bytes.NewReader(bytes.Join(documents, []byte("\n")))); n != len(documents) || err != nil {
		t.Fatalf("%d of %d were read: %v", n, len(documents), err)
	}
	if err := x.Sort(); err != nil {
		t.Fatal(err)
	}
	return x
}

func TestExportsAreCheckedLikeAStore(t *testing.T) {
	var all []check.Instance
	for i, c := range clean {
		all = append(all, named(fmt.Sprint("i-", i), c.in))
	}
	all = append(all, parent(childDone), childOf(2, completed))
	r := look(t, exportsOf(t, all...))
	wants(t, r)
	if r.Instances != int64(len(all)) || r.Executions <= r.Instances || r.Events == 0 {
		t.Errorf("%+v", r)
	}

	wants(t, look(t, exportsOf(t, parent(childDone), childOf(2, call))), check.ChildEarly)
	wants(t, look(t, exportsOf(t, of(story(started(), timer(1<<40), &events.TimerFired{Timer: 2})))), check.TimerEarly)
	wants(t, look(t, exportsOf(t, of(story(started(), call), story(started(func(s *events.Started) {
		s.Incarnation = "other"
	}))))), check.NoEnd)
	wants(t, look(t, exportsOf(t, mailed), acked(message("b"), message("a"))), check.MailboxReorder)
}

// TestWhatWasNotExportedIsNotLost: a parent, a child or an instance that is not among the exports
// is missing only if everything was exported.
func TestWhatWasNotExportedIsNotLost(t *testing.T) {
	r := look(t, exportsOf(t, parent(childDone)), acked(check.Acknowledged{What: check.AcknowledgedStart,
		Instance: "nobody",
		Name:     "order", Message: "x", At: now}), quiescent)
	if wants(t, r); r.NotJudged[check.NotKept] != 2 {
		t.Errorf("%+v", r)
	}
	wants(t, look(t, exportsOf(t, parent(childDone)), nothingRemoved), check.ChildMissing)
	wants(t, look(t, exportsOf(t, childOf(2, call))))
	wants(t, look(t, exportsOf(t, childOf(2, call)), nothingRemoved), check.Orphan)
}

func TestOfTwoExportsTheLongerCounts(t *testing.T) {
	r := look(t, exportsOf(t, of(story(started(), call)), of(story(started(), call, done, completed)),
		of(story(started(), call, done))))
	if wants(t, r); r.Events != 4 || r.Instances != 1 {
		t.Errorf("%+v", r)
	}
}

// TestManyExportsAreSorted has more than are kept in memory, so that several files are merged.
func TestManyExportsAreSorted(t *testing.T) {
	many := racetest.Size(3000, 1200)
	var all []check.Instance
	large := &events.ActivityScheduled{Name: "charge", Attempt: 1,
		Input: codec.Payload(`"` + strings.Repeat("x", 4000) + `"`)}
	for i := range many {
		all = append(all, named(fmt.Sprint("i-", i), of(story(started(), large, continued), story(next(0), call))))
	}
	x := exportsOf(t, all...)
	if r := look(t, x); r.Instances != int64(many) || r.Executions != 2*int64(many) || r.Events != 5*int64(many) ||
		r.Total() != 0 {
		t.Errorf("%+v", r)
	}
	list, err := x.List(t.Context(), history.Filter{IDPrefix: "i-11", Statuses: []round.Status{round.Running}},
		history.Page{Limit: 1000})
	if err != nil || len(list.Instances) != 111 {
		t.Errorf("%d instances begin with i-11 (%v)", len(list.Instances), err)
	}
}

func TestWhatIsNoExportIsRefused(t *testing.T) {
	for _, text := range []string{`{"instances":[]}`, "order-1", `[1,2]`,
		`{"instance":"i","execution":0,"events":[]}`} {
		x := check.NewExports(t.TempDir())
		if _, err := x.Add(strings.NewReader(text)); err == nil ||
			!strings.Contains(err.Error(), "it is no exported history") {
			t.Errorf("%s: %v", text, err)
		}
	}
	x := check.NewExports(t.TempDir())
	defer x.Close()
	if _, err := x.Add(strings.NewReader(
		`{"instance":"i","execution":1,"events":[{"id":1,"at":"2027-01-01T12:00:00Z","kind":"of_the_future","data":{}}]}`)); err != nil {
		t.Fatal(err)
	}
	if err := x.Sort(); err != nil {
		t.Fatal(err)
	}
	wants(t, look(t, x), check.HistoryUnread)
}
