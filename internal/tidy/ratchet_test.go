package tidy

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var shrink = flag.Bool("shrink", false, "write the ratchets that have become smaller, or are new")

// A ratchet lists how often each file or type still breaks a rule. The numbers may only fall: a
// higher one fails the test, and so does a lower one until the list says so.
type ratchet struct {
	file  string
	sites map[string][]string // where the rule is broken, by file or type
}

func newRatchet(name string) *ratchet {
	return &ratchet{"internal/tidy/testdata/" + name + ".txt", make(map[string][]string)}
}

// add notes a place at which the rule is broken.
func (r *ratchet) add(key, site string) { r.sites[key] = append(r.sites[key], site) }

// check compares what was found with the list.
func (r *ratchet) check(t *testing.T) {
	t.Helper()
	allowed, err := readRatchet(r.file)
	isNew := errors.Is(err, fs.ErrNotExist) && *shrink
	if err != nil && !isNew {
		t.Fatal(err)
	}
	problems, now := r.compare(allowed)
	if grown := r.grown(allowed); *shrink && (isNew || len(grown) == 0) {
		if problems, err = nil, writeRatchet(r.file, now); err != nil {
			t.Fatal(err)
		}
	}
	report(t, problems)
}

// compare lists what differs from what is allowed, and counts what there is.
func (r *ratchet) compare(allowed map[string]int) (problems []string, now map[string]int) {
	now = make(map[string]int)
	for key, sites := range r.sites {
		now[key] = len(sites)
	}
	problems = r.grown(allowed)
	for _, key := range slices.Sorted(maps.Keys(allowed)) {
		if now[key] < allowed[key] {
			problems = append(problems, fmt.Sprintf(
				"%s: %d are left of %d: run go test ./internal/tidy -shrink", key, now[key], allowed[key]))
		}
	}
	return problems, now
}

// grown lists the places of those that have more than is allowed.
func (r *ratchet) grown(allowed map[string]int) (problems []string) {
	for _, key := range slices.Sorted(maps.Keys(r.sites)) {
		sites, may := r.sites[key], allowed[key]
		if len(sites) <= may {
			continue
		}
		problems = append(problems, sites...)
		if may > 0 {
			problems = append(problems, fmt.Sprintf("%s: these are %d; %s allows %d", key, len(sites), r.file, may))
		}
	}
	return problems
}

func readRatchet(file string) (map[string]int, error) {
	text, err := readFile(file)
	if err != nil {
		return nil, err
	}
	allowed := make(map[string]int)
	for line := range strings.Lines(string(text)) {
		count, key, ok := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.Atoi(count)
		if !ok || err != nil || n <= 0 {
			return nil, fmt.Errorf("%s: %q: want a number above 0 and a name", file, line)
		}
		allowed[key] = n
	}
	return allowed, nil
}

func writeRatchet(file string, now map[string]int) error {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(now)) {
		fmt.Fprintf(&b, "%d %s\n", now[key], key)
	}
	return os.WriteFile(inRoot(file), []byte(b.String()), 0o644)
}

func TestRatchetsOnlyShrink(t *testing.T) {
	r := newRatchet("none")
	r.add("a.go", "a.go:1: too wide")
	r.add("a.go", "a.go:9: too wide")
	for _, c := range []struct {
		name    string
		allowed map[string]int
		want    string
	}{
		{"as many", map[string]int{"a.go": 2}, ""},
		{"more", map[string]int{"a.go": 1}, "a.go:1: too wide\na.go:9: too wide\na.go: these are 2; "},
		{"new", nil, "a.go:1: too wide\na.go:9: too wide"},
		{"fewer", map[string]int{"a.go": 3}, "a.go: 2 are left of 3: run "},
		{"none left", map[string]int{"a.go": 2, "b.go": 1}, "b.go: 0 are left of 1"},
	} {
		problems, now := r.compare(c.allowed)
		got := strings.Join(problems, "\n")
		if !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") || now["a.go"] != 2 {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}
