package racetest

import (
	"os"
	"regexp"
	"testing"
)

// TestSuppressionsAreOfThisServer fails when go.mod takes another version of nats-server: the new
// one may have no such race, and then its suppression goes.
func TestSuppressionsAreOfThisServer(t *testing.T) {
	suppressions, module := read(t, "suppressions.txt"), read(t, "../../go.mod")
	found := regexp.MustCompile(`nats-server/v2 v(\S+)`).FindStringSubmatch(module)
	named := regexp.MustCompile(`nats-server ([\d.]+):`).FindAllStringSubmatch(suppressions, -1)
	if found == nil || len(named) == 0 {
		t.Fatal("go.mod or suppressions.txt names no version of nats-server")
	}
	for _, v := range named {
		if v[1] != found[1] {
			t.Errorf("suppressions.txt has a race in nats-server %s, go.mod has %s: see whether it is still there",
				v[1], found[1])
		}
	}
}

func read(t *testing.T, name string) string {
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
