package historytest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/history"
)

// lister lists schedules.
type lister interface {
	ListSchedules(context.Context, history.ScheduleFilter, history.Page) (history.ScheduleList, error)
}

// pagesOf walks through a list.
func (s scheduled) pagesOf(r lister, f history.ScheduleFilter, limit int) (ids []string, pages int) {
	s.Helper()
	for p := (history.Page{Limit: limit}); ; {
		list, err := r.ListSchedules(s.ctx(), f, p)
		if err != nil {
			s.Fatal(err)
		}
		if len(list.Schedules) > limit || list.Next != "" && len(list.Schedules) == 0 {
			s.Fatalf("a page of %d schedules, next %q; the limit is %d", len(list.Schedules), list.Next, limit)
		}
		pages++
		ids = append(ids, scheduleIDs(list.Schedules)...)
		if p.Cursor = list.Next; p.Cursor == "" {
			return ids, pages
		}
	}
}

// schedulesListed: pages have all schedules, in the order of the bytes of their ids, whatever is
// changed, created and deleted in between.
func schedulesListed(t *testing.T, db *Database) {
	s := openScheduled(t, db)
	if ids, pages := s.pagesOf(s.Store, history.ScheduleFilter{}, 10); len(ids) != 0 || pages != 1 {
		t.Fatalf("%q on %d pages", ids, pages)
	}
	want := []string{"A", "B-", "Z", "_", "a", "a ", "b%", "b_", "ß", "Ω", "日", "\U0001F600"}
	for _, id := range rand.Perm(len(want)) {
		s.put(want[id], Began)
	}
	if !slices.IsSorted(want) {
		t.Fatal("the test is wrong")
	}
	for _, limit := range []int{1, 2, 5, len(want) - 1, len(want), len(want) + 1, 1000} {
		ids, pages := s.pagesOf(s.Store, history.ScheduleFilter{}, limit)
		if !slices.Equal(ids, want) || pages != (len(want)+limit-1)/limit {
			t.Fatalf("limit %d: %q on %d pages", limit, ids, pages)
		}
	}
	first := must[history.ScheduleList](s, "list")(s.ListSchedules(s.ctx(), history.ScheduleFilter{},
		history.Page{Limit: 5}))
	for _, x := range first.Schedules {
		s.equal("listed "+x.ID, x, s.one(x.ID))
	}
	s.change(history.ScheduleChange{Schedule: history.Schedule{ID: "a"}, Delete: true, Expected: s.one("a").Version})
	s.change(scheduleOf("b%", Began.Add(time.Hour), s.one("b%").Version))
	s.put("0", Began)
	rest := must[history.ScheduleList](s, "list")(s.ListSchedules(s.ctx(), history.ScheduleFilter{},
		history.Page{Limit: 100, Cursor: first.Next}))
	if got := scheduleIDs(rest.Schedules); !slices.Equal(got, want[5:]) || rest.Next != "" {
		t.Fatalf("behind %q, there are %q", first.Next, got)
	}

	s.begin("instance-1", "instance-2")
	instances := s.page(history.Filter{}, history.Page{Limit: 1})
	for _, bad := range []string{"x", "e30", instances.Next} {
		_, err := s.ListSchedules(s.ctx(), history.ScheduleFilter{}, history.Page{Cursor: bad})
		s.fails("the cursor "+bad, err, history.ErrBadCursor)
		_, err = s.Within(1000).ListSchedules(s.ctx(), history.ScheduleFilter{}, history.Page{Cursor: bad})
		s.fails("the cursor "+bad, err, history.ErrBadCursor)
	}
}

// schedulesByPrefix: a prefix is a text, in which no character has a special meaning.
func schedulesByPrefix(t *testing.T, db *Database) {
	s := openScheduled(t, db)
	all := []string{"%", "%a", "A", "_", "_b", "a", "a%c", "a_c", "abc", "ab\\c", "b", "größe", "gro", "日本", "日"}
	for _, id := range all {
		s.put(id, Began)
	}
	slices.Sort(all)
	for _, prefix := range append([]string{"", "ab", "a%", "a_", "ab\\", "grö", "日", "c", "*", "'", "a\x00", "\xff"},
		all...) {
		var want []string
		for _, id := range all {
			if strings.HasPrefix(id, prefix) {
				want = append(want, id)
			}
		}
		for _, limit := range []int{1, 2, 100} {
			if got, _ := s.pagesOf(s.Store, history.ScheduleFilter{IDPrefix: prefix}, limit); !slices.Equal(got, want) {
				t.Errorf("prefix %q, limit %d: %q, want %q", prefix, limit, got, want)
			}
		}
	}
}

// schedulesWithin: pages also end with the schedule that makes them as large as the bound.
func schedulesWithin(t *testing.T, db *Database) {
	s := openScheduled(t, db)
	var want []string
	for n := range 20 {
		c := scheduleOf(fmt.Sprintf("%02d", n), Began, 0)
		c.Data = make([]byte, 1000)
		want = append(want, s.change(c).ID)
	}
	for bytes, pages := range map[int]int{1: 20, 1000: 20, 1001: 10, 4000: 5, 19_000: 2, 20_000: 1, 1 << 20: 1} {
		got, n := s.pagesOf(s.Within(bytes), history.ScheduleFilter{}, 100)
		if !slices.Equal(got, want) || n != pages {
			t.Errorf("within %d bytes: %q on %d pages, want %d", bytes, got, n, pages)
		}
	}
	if got, n := s.pagesOf(s.Within(5000), history.ScheduleFilter{IDPrefix: "1"}, 3); len(got) != 10 || n != 4 {
		t.Errorf("within 5000 bytes, 3 on a page: %q on %d pages", got, n)
	}
}
