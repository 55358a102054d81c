package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestChoosing(t *testing.T) {
	cases := []struct {
		args string
		want string // workloads and how many variants they have, or part of the error
	}{
		{"-w W1", "W1:2"},
		{"-w W1,W9", "W1:2 W9:2"},
		{"-w W1s?", "W1:2 W1s:2"},
		{"-w W1|W2 -variant ^128", "W1:1"},
		{"-w W8 -database sqlite", "needs PostgreSQL"},
		{"-w W8,W1 -database sqlite", "W1:2"},
		{"-w W77", "no such workload"},
		{"-w (", "error parsing"},
		{"-size huge", "tiny, small and full"},
		{"more", `what is "more"`},
		{"-w W1 -postgres max_wal_size=4GB", "W1:2"},
		{"-w W1 -postgres max_wal_size", `"max_wal_size" is no setting`},
		{"-w W1 -postgres a=1 -database sqlite", "for the server that is started"},
	}
	for _, c := range cases {
		t.Run(c.args, func(t *testing.T) {
			o, err := readOptions(strings.Fields(c.args))
			var chosen []workload
			if err == nil {
				chosen, err = choose(workloads, o)
			}
			var got []string
			for _, w := range chosen {
				got = append(got, w.name+":"+string(rune('0'+len(w.variants))))
			}
			if err != nil && !strings.Contains(err.Error(), c.want) || err == nil && strings.Join(got, " ") != c.want {
				t.Errorf("got %v, %v, want %s", got, err, c.want)
			}
		})
	}
	o, err := readOptions(nil)
	if all, err2 := choose(workloads, o); err != nil || err2 != nil || len(all) != len(workloads) {
		t.Errorf("without a choice there are %d workloads, %v, %v", len(all), err, err2)
	}
}

// TestTakingPlans takes as many plans as there is room for, until there are none any more.
func TestTakingPlans(t *testing.T) {
	n := 0
	from := &plans{next: some(10, func() plan { n++; return plan{number: n} })}
	slots := make(chan struct{}, 6)
	take := func(most int) (numbers []int) {
		list, err := from.take(t.Context(), slots, most)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range list {
			numbers = append(numbers, p.number)
		}
		return numbers
	}
	if got := take(4); !slices.Equal(got, []int{1, 2, 3, 4}) {
		t.Errorf("four at most: %v", got)
	}
	if got := take(4); !slices.Equal(got, []int{5, 6}) {
		t.Errorf("room for two: %v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := from.take(ctx, slots, 4); !errors.Is(err, context.Canceled) {
		t.Errorf("no room: %v", err)
	}
	for range 6 {
		<-slots
	}
	if got := take(64); !slices.Equal(got, []int{8, 9, 10}) { // the canceled take took the 7th
		t.Errorf("the rest: %v", got)
	}
	if got := take(64); got != nil || len(slots) != 3 {
		t.Errorf("there is none any more, but got %v with %d slots taken", got, len(slots))
	}
}
