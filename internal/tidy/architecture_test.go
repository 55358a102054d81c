package tidy

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The way of one message must fit into a reader's head.
const (
	maxFilesOnTheWay     = 20
	maxHandOversOnTheWay = 6
)

// TestTheWayOfOneMessageIsShort bounds the files and the hand-overs that a message passes between
// its client and its result, as ARCHITECTURE.md names them.
func TestTheWayOfOneMessageIsShort(t *testing.T) {
	text, err := os.ReadFile("../../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, way, found := strings.Cut(string(text), "\n## The way of one message\n")
	if !found {
		t.Fatal("ARCHITECTURE.md has no section about the way of one message")
	}
	way, _, _ = strings.Cut(way, "\n## ")
	files := make(map[string]bool)
	for _, name := range regexp.MustCompile("`[^`]+\\.go`").FindAllString(way, -1) {
		files[name] = true
	}
	if n := len(files); n == 0 || n > maxFilesOnTheWay {
		t.Errorf("ARCHITECTURE.md names %d files on the way of one message, at most %d are readable", n,
			maxFilesOnTheWay)
	}
	steps := regexp.MustCompile(`(?m)^\*\*\d+\. `).FindAllString(way, -1)
	if n := len(steps); n == 0 || n > maxHandOversOnTheWay {
		t.Errorf("ARCHITECTURE.md has %d hand-overs on the way of one message, at most %d are readable", n,
			maxHandOversOnTheWay)
	}
}
