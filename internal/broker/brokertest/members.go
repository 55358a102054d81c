package brokertest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
)

var memberTests = []test{
	// A busy machine may delay a member for seconds.
	{"members see each other", Settings{MemberLease: 12 * time.Second}, membersSee},
	{"a member that dies is missed within the lease", Settings{}, memberDies},
	{"a member that leaves is missed at once", Settings{MemberLease: 30 * time.Second}, memberLeaves},
	{"a member's new code is announced", Settings{MemberLease: 30 * time.Second}, memberChanges},
	{"who joins late does not see the dead", Settings{}, lateJoiner},
	{"members see each other again after the broker was restarted", Settings{Restarts: true}, membersAfterRestart},
}

func member(id string) broker.Member {
	return broker.Member{ID: id, Engine: 3, Code: map[string][]string{"order ü": {"1.0.0", "1.1.0"}},
		Build: "b", Host: "h"}
}

func (t *T) join(b Bus, m broker.Member) broker.Membership {
	t.Helper()
	is, err := b.Join(t.Context(), m)
	t.must(err)
	return is
}

// sees waits until a membership lists just these members.
func (t *T) sees(limit time.Duration, m broker.Membership, want ...string) {
	t.Helper()
	t.within(limit, fmt.Sprintf("%q are there", want), func() bool { return slices.Equal(ids(m), want) })
}

func ids(m broker.Membership) (ids []string) {
	for _, member := range m.Members() {
		ids = append(ids, member.ID)
	}
	return ids
}

func membersSee(t *T) {
	a, b, c := t.bus(), t.bus(), t.bus()
	first := t.join(a, member("a.1"))
	t.sees(soon, first, "a.1")
	second := t.join(b, member("b/2 ü"))
	if got := ids(second); !slices.Equal(got, []string{"a.1", "b/2 ü"}) {
		t.Errorf("who joins sees %q at once", got)
	}
	select {
	case <-first.Changed():
	case <-time.After(soon):
		t.Error("the first was not told of the second")
	}
	t.sees(soon, first, "a.1", "b/2 ü")
	third := t.join(c, member("c"))
	for _, m := range []broker.Membership{first, second, third} {
		t.sees(soon, m, "a.1", "b/2 ü", "c")
		if is := fmt.Sprint(m.Members()[2]); is != fmt.Sprint(member("c")) {
			t.Errorf("the third is %s", is)
		}
	}
	for range 10 { // longer than the lease
		pause(t.Context(), t.MemberLease/3)
		if n := len(first.Members()); n != 3 {
			t.Fatalf("%d are there while all three live", n)
		}
	}
}

func memberDies(t *T) {
	a, b := t.bus(), t.bus()
	first := t.join(a, member("a"))
	t.join(b, member("b"))
	t.sees(soon, first, "a", "b")
	t.must(b.Close())
	t.sees(t.MemberLease+soon, first, "a")
	t.sees(soon, t.join(t.bus(), member("c")), "a", "c")
}

func memberLeaves(t *T) {
	a, b := t.bus(), t.bus()
	first, second := t.join(a, member("a")), t.join(b, member("b"))
	t.sees(soon, first, "a", "b")
	t.must(second.Leave(t.Context()))
	t.sees(soon, first, "a")
	if got := ids(t.join(b, member("c"))); !slices.Equal(got, []string{"a", "c"}) {
		t.Errorf("who joins afterwards sees %q", got)
	}
}

func memberChanges(t *T) {
	a, b := t.bus(), t.bus()
	first := t.join(a, member("a"))
	before := t.join(b, member("b"))
	t.sees(soon, first, "a", "b")
	for len(first.Changed()) > 0 {
		<-first.Changed()
	}
	next := member("b")
	next.Leaving, next.Code = true, map[string][]string{"other": {"2"}}
	now := t.join(b, next)
	select {
	case <-first.Changed():
	case <-time.After(soon):
		t.Error("nobody was told")
	}
	t.eventually("the change is known", func() bool {
		all := first.Members()
		return len(all) == 2 && all[1].Leaving && all[1].Knows("other", "2") && !all[1].Knows("order ü", "")
	})
	t.must(before.Leave(t.Context())) // another membership has replaced it
	pause(t.Context(), short/2)
	t.sees(soon, first, "a", "b")
	t.must(now.Leave(t.Context()))
	t.sees(soon, first, "a")
}

func lateJoiner(t *T) {
	a, b := t.bus(), t.bus()
	t.join(a, member("dead"))
	t.must(a.Close())
	alive := t.join(b, member("alive"))
	pause(t.Context(), t.MemberLease*5/4)
	if got := ids(t.join(t.bus(), member("late"))); slices.Contains(got, "dead") {
		t.Errorf("who joins sees %q", strings.Join(got, ", "))
	}
	t.sees(soon, alive, "alive", "late")
}

func membersAfterRestart(t *T) {
	if t.Restart == nil {
		t.Skip("the broker cannot be restarted")
	}
	a, b := t.bus(), t.bus()
	first, second := t.join(a, member("a")), t.join(b, member("b"))
	t.sees(soon, first, "a", "b")
	t.Restart(t.T, func() {
		pause(t.Context(), 2*t.MemberLease)
		if got := ids(first); len(got) != 2 {
			t.Errorf("without a broker a member sees %q; want what it saw last", got)
		}
	})
	t.sees(patience, first, "a", "b")
	t.sees(patience, second, "a", "b")
	third := t.join(t.bus(), member("c"))
	for _, m := range []broker.Membership{first, second, third} {
		t.sees(patience, m, "a", "b", "c")
	}
}
