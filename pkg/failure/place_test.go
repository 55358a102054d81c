package failure_test

import (
	"runtime/debug"
	"strings"
	"testing"

	"github.com/rondo-run/rondo/pkg/failure"
)

func TestPlaceOfAPanic(t *testing.T) {
	stackOf := func(do func()) (stack string) {
		defer func() {
			_ = recover() // that it panics is the point
			stack = string(debug.Stack())
		}()
		do()
		return ""
	}
	var none map[string]int
	for name, do := range map[string]func(){
		"by the code":    func() { panic("no") },
		"by the runtime": func() { none["x"] = 1 },
	} {
		e := &failure.Error{Kind: failure.Application, Cause: &failure.Error{Kind: failure.Panicked,
			Stack: stackOf(do)}}
		if at := e.Place(); !strings.HasPrefix(at, "failure/place_test.go:2") {
			t.Errorf("%s: %q", name, at)
		}
	}
	for _, stack := range []string{"", "goroutine 1 [running]:", "x\npanic(", "x\npanic({1})\n\ta.go:1\nmain.f()",
		"x\npanic({1})\n\ta.go:1\nruntime.f()\n\tb.go:2\n"} {
		if at := (&failure.Error{Stack: stack}).Place(); at != "" {
			t.Errorf("%q is at %q", stack, at)
		}
	}
	windows := "x\npanic({1})\n\ta.go:1\nmain.f()\n\tC:\\work\\shop\\main.go:7 +0x1\n"
	if at := (&failure.Error{Stack: windows}).Place(); at != "shop/main.go:7" {
		t.Errorf("got %q", at)
	}
}
