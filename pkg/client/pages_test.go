package client

import (
	"errors"
	"slices"
	"testing"
)

// TestPages checks that an iterator fetches a page when the loop comes to it, and stops with it.
func TestPages(t *testing.T) {
	pages := map[string][]int{"": {1, 2}, "a": nil, "b": {3}, "c": {4}}
	next := map[string]string{"": "a", "a": "b", "b": "c"}
	broken := errors.New("broken")
	for _, c := range []struct {
		name    string
		until   int
		fail    string
		want    []int
		fetched []string
		err     error
	}{
		{"all", 0, "-", []int{1, 2, 3, 4}, []string{"", "a", "b", "c"}, nil},
		{"break within a page", 1, "-", []int{1}, []string{""}, nil},
		{"break at its end", 2, "-", []int{1, 2}, []string{""}, nil},
		{"break behind an empty page", 3, "-", []int{1, 2, 3}, []string{"", "a", "b"}, nil},
		{"error", 0, "b", []int{1, 2}, []string{"", "a", "b"}, broken},
	} {
		var got []int
		var fetched []string
		all := paged(func(cursor string) ([]int, string, error) {
			fetched = append(fetched, cursor)
			if cursor == c.fail {
				return nil, "", broken
			}
			return pages[cursor], next[cursor], nil
		})
		if len(fetched) > 0 {
			t.Errorf("%s: it fetches before the loop", c.name)
		}
		var last error
		for x, err := range all {
			if last = err; err != nil {
				continue
			}
			if got = append(got, x); x == c.until {
				break
			}
		}
		if !slices.Equal(got, c.want) || !slices.Equal(fetched, c.fetched) || !errors.Is(last, c.err) {
			t.Errorf("%s: got %v, %v of pages %q", c.name, got, last, fetched)
		}
		list, err := Collect(all)
		if c.fail != "-" && (len(list) != len(c.want) || !errors.Is(err, c.err)) {
			t.Errorf("%s: collected %v, %v", c.name, list, err)
		}
	}
}

// TestNumberedPages does it with pages that begin behind a number. A short page is the last one.
func TestNumberedPages(t *testing.T) {
	const n = 2*pageSize + 1
	var asked []int64
	all := numbered(0, func(x int64) int64 { return x }, func(after int64) (list []int64, err error) {
		asked = append(asked, after)
		for x := after + 1; x <= min(after+pageSize, n); x++ {
			list = append(list, x)
		}
		return list, nil
	})
	list, err := Collect(all)
	if len(list) != n || list[n-1] != n || err != nil || !slices.Equal(asked, []int64{0, pageSize, 2 * pageSize}) {
		t.Errorf("got %d, %v, after %v", len(list), err, asked)
	}
	asked = nil
	for range all {
		break
	}
	if len(asked) != 1 {
		t.Errorf("got %v", asked)
	}
}
