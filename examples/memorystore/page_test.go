package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rondo-run/rondo/pkg/history"
)

// TestPage compares what the page "Write a store" says of this example with its files.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/write-a-store.md")
	if err != nil {
		t.Fatal(err)
	}
	methods := reflect.TypeFor[history.Store]().NumMethod()
	if want := fmt.Sprintf("the contract has %d methods", methods); !strings.Contains(string(page), want) {
		t.Errorf("the page does not say %q", want)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	all := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || file == "main.go" {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines := bytes.Count(source, []byte("\n"))
		all += lines
		row := regexp.MustCompile(`\| \[` + regexp.QuoteMeta(file) + `\]\(.*?\) \| (\d+) \|`).FindSubmatch(page)
		if row == nil {
			t.Errorf("the table of the page has no row for %s", file)
			continue
		}
		near(t, file, string(row[1]), lines)
	}
	total := regexp.MustCompile(`It has ([\d,]+) lines`).FindSubmatch(page)
	if total == nil {
		t.Fatal("the page does not say how many lines the example has")
	}
	near(t, "all files", strings.ReplaceAll(string(total[1]), ",", ""), all)
}

// near checks that a number of lines is right by a tenth.
func near(t *testing.T, what, said string, lines int) {
	t.Helper()
	n, err := strconv.Atoi(said)
	if err != nil || 10*max(n-lines, lines-n) > lines {
		t.Errorf("%s: the page says %s lines, and there are %d", what, said, lines)
	}
}
