package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestOutputOfFailedTests(t *testing.T) {
	var out bytes.Buffer
	r, runs := &report{out: &out}, make(map[string]*packageRun)
	for line := range strings.Lines(`{"Action":"output","Package":"m/a","Test":"TestGood","Output":"good\n"}
{"Action":"pass","Package":"m/a","Test":"TestGood"}
{"Action":"output","Package":"m/a","Output":"ok  \tm/a\t0.1s\n"}
{"Action":"pass","Package":"m/a","Elapsed":0.1}
not JSON
{"Action":"output","Package":"m/b","Test":"TestBad","Output":"bad\n"}
{"Action":"output","Package":"m/b","Test":"TestGood","Output":"good\n"}
{"Action":"pass","Package":"m/b","Test":"TestGood"}
{"Action":"fail","Package":"m/b","Test":"TestBad"}
{"Action":"output","Package":"m/b","Test":"TestHangs","Output":"hangs\n"}
{"Action":"output","Package":"m/b","Output":"panic: test timed out\n"}
{"Action":"fail","Package":"m/b","Elapsed":2}
`) {
		r.line(runs, []byte(strings.TrimSpace(line)))
	}
	r.table(1, time.Second)
	got := out.String()
	for _, want := range []string{"ok  \tm/a\t0.1s\n", "not JSON\n", "bad\n", "hangs\n", "panic: test timed out\n",
		"FAIL\tm/b\t2.000s\n", "FAILED: m/b\n", "packages: 1 passed, 1 failed\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("the output lacks %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, "good") {
		t.Errorf("the output has that of a test that passed:\n%s", got)
	}
}

// go test attributes the stacks of a process that gets a SIGQUIT to the test that it named last,
// and sends the pass of that test after them.
func TestStacksOfAHangingTestAreKept(t *testing.T) {
	var out bytes.Buffer
	r, runs := &report{out: &out}, make(map[string]*packageRun)
	for line := range strings.Lines(`{"Action":"output","Package":"m/a","Test":"TestHangs","Output":"hangs\n"}
{"Action":"output","Package":"m/a","Test":"TestGood","Output":"good\n"}
{"Action":"output","Package":"m/a","Test":"TestGood","Output":"    --- PASS: TestGood (0.00s)\n"}
{"Action":"output","Package":"m/a","Test":"TestGood","Output":"SIGQUIT: quit\n"}
{"Action":"output","Package":"m/a","Test":"TestGood","Output":"goroutine 7 [chan receive]:\n"}
{"Action":"pass","Package":"m/a","Test":"TestGood"}
{"Action":"fail","Package":"m/a","Elapsed":2}
`) {
		r.line(runs, []byte(strings.TrimSpace(line)))
	}
	got := out.String()
	if want := "SIGQUIT: quit\ngoroutine 7 [chan receive]:\n"; strings.Count(got, want) != 1 {
		t.Errorf("the output lacks %q:\n%s", want, got)
	}
	if strings.Contains(got, "good") {
		t.Errorf("the output has that of a test that passed:\n%s", got)
	}
}

func TestTimeIsThatOfTheRightPackage(t *testing.T) {
	sqlite, history := &packageRun{name: "m/pkg/history/sqlite"}, &packageRun{name: "m/pkg/history"}
	r := &report{out: new(bytes.Buffer), runs: []*packageRun{history, sqlite}}
	r.spent(map[string]time.Duration{"/src/pkg/history/sqlite": time.Second, "/src/pkg/history": time.Minute})
	if sqlite.cpu != time.Second {
		t.Errorf("sqlite has %v, want a second", sqlite.cpu)
	}
	if history.cpu != time.Minute {
		t.Errorf("history has %v, want a minute", history.cpu)
	}
}

// Two commands run tests of one package at the same time, some with the race detector. The end of
// one run neither ends the other nor hides its failure.
func TestAPackageOfTwoCommands(t *testing.T) {
	var out bytes.Buffer
	r := &report{out: &out}
	one, two := make(map[string]*packageRun), make(map[string]*packageRun)
	for _, x := range []struct {
		runs map[string]*packageRun
		line string
	}{
		{one, `{"Action":"output","Package":"m/a","Test":"TestBad","Output":"bad\n"}`},
		{two, `{"Action":"output","Package":"m/a","Test":"TestGood","Output":"good\n"}`},
		{two, `{"Action":"pass","Package":"m/a","Test":"TestGood"}`},
		{two, `{"Action":"pass","Package":"m/a","Elapsed":3}`},
		{one, `{"Action":"fail","Package":"m/a","Test":"TestBad"}`},
		{one, `{"Action":"fail","Package":"m/a","Elapsed":2}`},
		{one, `{"Action":"pass","Package":"m/b","Elapsed":1}`},
		{two, `{"Action":"pass","Package":"m/b","Elapsed":4}`},
	} {
		r.line(x.runs, []byte(x.line))
	}
	r.spent(map[string]time.Duration{"/src/a": time.Second})
	r.table(2, time.Minute)
	got := out.String()
	for _, want := range []string{"bad\n", "1.0     3.0  m/a\n", "0.0     4.0  m/b\n", "FAILED: m/a\n",
		"packages: 1 passed, 1 failed\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("the output lacks %q:\n%s", want, got)
		}
	}
}

func TestStat(t *testing.T) {
	p, ok := parseStat("42 (a (b) .test) S 7 1 1 0 -1 0 0 0 0 0 100 20 3 4 20 0 1 0 5")
	if want := (process{parent: 7, name: "a (b) .test", cpu: 1270 * time.Millisecond}); !ok || p != want {
		t.Errorf("it reads %+v, want %+v", p, want)
	}
	for _, bad := range []string{"", "42 a S 7", "42 (a) S x 1 1"} {
		if p, ok := parseStat(bad); ok {
			t.Errorf("%q is read as %+v", bad, p)
		}
	}
}

// TestOtherProcessesAreReadOnce: the machine may have hundreds of processes.
func TestOtherProcessesAreReadOnce(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("THE TIMES OF PROCESSES ARE NOT TESTED: ", err)
	}
	w := &watcher{root: os.Getpid(), seen: make(map[int]*seen)}
	for range 2 {
		c := exec.Command("cat") // it reads until its input ends
		input, err := c.StdinPipe()
		if err == nil {
			err = c.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		all := w.read()
		if all[c.Process.Pid].parent != w.root || all[w.root].name == "" {
			t.Errorf("%v lacks %d or its child %d", all, w.root, c.Process.Pid)
		}
		if parent := os.Getppid(); all[parent].name != "" || parent > 1 && !w.others[parent] {
			t.Errorf("%d is read, which is above", parent)
		}
		_ = input.Close() // ends it
		if err := c.Wait(); err != nil {
			t.Error(err)
		}
	}
}

func TestStepsGoOnAfterAFailure(t *testing.T) {
	all, err := parseSteps([]string{"a=true", "b=echo 'again: make sim SEED=4'; false", "c=true"}, "b")
	if err != nil || len(all) != 2 {
		t.Fatalf("%d steps (%v), want the two from b on", len(all), err)
	}
	var out bytes.Buffer
	for _, s := range all {
		s.run(context.Background(), &out)
	}
	table := tableOf(all)
	for _, want := range []string{"| b | FAILED |", "`make b`, `make sim SEED=4`", "| c | ok |"} {
		if !strings.Contains(table, want) {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
	if _, err := parseSteps([]string{"a=true"}, "z"); err == nil || !strings.Contains(err.Error(), "the steps are a") {
		t.Errorf("an unknown step gives the error %v", err)
	}
}

func TestChangedTests(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir("p", 0o755); err != nil {
		t.Fatal(err)
	}
	source := `package p

func TestA(t *testing.T) { help() }

func TestB(t *testing.T) {}

func help() {
	further()
}

func further() {}

func TestC(t *testing.T) { further() }
`
	if err := os.WriteFile(filepath.Join("p", "p_test.go"), []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	for diff, want := range map[string][]string{
		"+++ b/p/p_test.go\n@@ -5 +5 @@\n":                           {"TestB"},
		"+++ b/p/p_test.go\n@@ -8,0 +8 @@\n":                         {"TestA"},
		"+++ b/p/p_test.go\n@@ -11 +11,2 @@\n":                       {"TestA", "TestC"},
		"+++ /dev/null\n@@ -1 +0,0 @@\n+++ b/p/p.go\n@@ -1 +1 @@\n":  nil,
		"+++ b/p/testdata/a.txt\n@@ -1 +1 @@\n+++ b/README.md\n@@\n": nil,
	} {
		c := parseDiff(diff)
		got, err := c.testsOf("./p")
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("after %q the tests %q differ, want %q", diff, got, want)
		}
		if dirs := c.packages(); !slices.Equal(dirs, []string{"./p"}) {
			t.Errorf("after %q the packages %q differ", diff, dirs)
		}
	}
}
