package simulation

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// ledger has the seeds that failed once.
const ledger = "testdata/seeds.txt"

// readLedger reads the seeds of a ledger: one a line, with a comment after #.
func readLedger(path string) (seeds []uint64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", path, n, err)
		}
		seeds = append(seeds, seed)
	}
	return seeds, lines.Err()
}

// enter appends a seed that has failed to a ledger, unless it is there.
func enter(path string, seed uint64, fault string) error {
	known, err := readLedger(path)
	if err != nil || slices.Contains(known, seed) {
		return err
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	comment := []rune(strings.Join(strings.Fields(fault), " "))
	_, err = fmt.Fprintf(f, "%d # %s\n", seed, string(comment[:min(len(comment), 70)]))
	if e := f.Close(); err == nil {
		err = e
	}
	return err
}

// TestFormerSeeds plays the seeds of the ledger.
func TestFormerSeeds(t *testing.T) {
	seeds, err := readLedger(ledger)
	if err != nil {
		t.Fatal(err)
	}
	for _, seed := range seeds {
		if o := runWorld(t, seed, false); len(o.faults) > 0 {
			t.Errorf("seed %d (%s):\n  %s", o.seed, o.sky, o.faults)
		}
	}
}

func TestLedger(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seeds.txt")
	if err := os.WriteFile(path, []byte("# comment\n\n17 # why\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, seed := range []uint64{1795325930482903833, 17, 4, 4} {
		if err := enter(path, seed, "job-1 has not ended:\n # 12 "+strings.Repeat("ü", 100)); err != nil {
			t.Fatal(err)
		}
	}
	seeds, err := readLedger(path)
	if want := []uint64{17, 1795325930482903833, 4}; err != nil || !slices.Equal(seeds, want) {
		t.Errorf("the ledger has %v (%v), want %v", seeds, err, want)
	}
	if err := os.WriteFile(path, []byte("17 why\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readLedger(path); err == nil {
		t.Error("a comment counts as a seed")
	}
}
