package orchestration_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rondo-run/rondo/pkg/orchestration"
)

func nothing(*orchestration.Context, string) (string, error) { return "", nil }

func version(v string) orchestration.Binding {
	return subject.Bind(nothing, orchestration.Version(v))
}

func registry(t *testing.T, bindings ...orchestration.Binding) *orchestration.Registry {
	t.Helper()
	r, err := orchestration.NewRegistry(bindings...)
	must(t, err)
	return r
}

func TestRegistryTellsEverythingThatIsWrong(t *testing.T) {
	_, err := orchestration.NewRegistry(
		subject.Bind(nothing),
		subject.Bind(nothing),
		subject.Bind(nil),
		version("1.0"),
		version(""),
		orchestration.Define[string, string]("").Bind(nothing),
		orchestration.Define[string, string]("rondo.mine").Bind(nothing),
		orchestration.Define[string, string]("two\nlines").Bind(nothing),
		orchestration.Binding{},
		orchestration.Define[string, func()]("calls").Bind(func(*orchestration.Context, string) (func(), error) {
			return nil, nil
		}),
	)
	mustSay(t, err,
		`orchestration "subject" version 1.0.0 is registered twice`,
		`orchestration "subject": it has no function`,
		`orchestration "subject": version "1.0" is not a semantic version; write it like 1.4.2`,
		`orchestration "subject": its version is empty`,
		`orchestration name: it is empty`,
		`"rondo.mine": the prefix "rondo." is reserved`,
		`"two\nlines": it contains U+000A`,
		`orchestration "calls": the result has type func(), and a func cannot be stored`,
	)
	if n := strings.Count(err.Error(), "\n"); n != 9 {
		t.Errorf("%d lines below the first, want one for each that is wrong:\n%v", n, err)
	}
}

// TestRegistryRefusesBadBuffers: Buffered names events, and each has one bound.
func TestRegistryRefusesBadBuffers(t *testing.T) {
	event := orchestration.DefineEvent[string]
	for want, o := range map[string][]orchestration.BindOption{
		"Buffered names no event":     {orchestration.Buffered(1)},
		"an instance can keep 1 to":   {orchestration.Buffered(0, event("a"))},
		"Buffered(10001)":             {orchestration.BufferedLatest(10_001, event("a"))},
		`event "a" is buffered twice`: {orchestration.Buffered(1, event("a")), orchestration.BufferedLatest(1, event("a"))},
		`"two\nlines"`:                {orchestration.Buffered(1, event("two\nlines"))},
	} {
		_, err := orchestration.NewRegistry(subject.Bind(nothing, o...))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	r := registry(t, subject.Bind(nothing, orchestration.Buffered(3, event("a"), event("b")),
		orchestration.BufferedLatest(1, event("c"))))
	for name, want := range map[string]struct {
		most   int
		latest bool
	}{"a": {3, false}, "b": {3, false}, "c": {1, true}, "d": {}} {
		if most, latest := r.Keeps(subject.Name(), "1.0.0", name); most != want.most || latest != want.latest {
			t.Errorf("of %s it keeps %d, latest %v", name, most, latest)
		}
	}
}

func TestRegistryFindsCode(t *testing.T) {
	other := orchestration.Define[int, int]("other").Bind(func(*orchestration.Context, int) (int, error) {
		return 1, nil
	})
	r := registry(t, version("1.0.0"), version("2.0.0"), other)
	if names := r.Names(); !slices.Equal(names, []string{"other", "subject"}) {
		t.Errorf("names %q", names)
	}
	for _, v := range []string{"1.0.0", "2.0.0"} {
		if !r.Has("subject", v) {
			t.Errorf("version %s is not registered", v)
		}
	}
	for _, missing := range [][2]string{{"subject", "3.0.0"}, {"subject", ""}, {"nobody", "1.0.0"}} {
		if r.Has(missing[0], missing[1]) {
			t.Errorf("%q is there", missing)
		}
	}
	if v, ok := r.Resolve("nobody"); ok {
		t.Errorf("nobody has version %q", v)
	}
	if v := r.Versions("nobody"); len(v) != 0 {
		t.Errorf("nobody has versions %q", v)
	}
}

func TestVersionsAreOrdered(t *testing.T) {
	for _, c := range []struct {
		registered, want []string
	}{
		{[]string{"1.0.0"}, []string{"1.0.0"}},
		{[]string{"1.10.0", "1.9.0", "1.2.10"}, []string{"1.2.10", "1.9.0", "1.10.0"}},
		{[]string{"2.0.0", "2.0.0-rc.1", "1.0.0"}, []string{"1.0.0", "2.0.0-rc.1", "2.0.0"}},
		{[]string{"2.0.0-rc.10", "2.0.0-rc.9", "2.0.0-beta"}, []string{"2.0.0-beta", "2.0.0-rc.9", "2.0.0-rc.10"}},
	} {
		var bindings []orchestration.Binding
		for _, v := range c.registered {
			bindings = append(bindings, version(v))
		}
		r := registry(t, bindings...)
		if got := r.Versions("subject"); !slices.Equal(got, c.want) {
			t.Errorf("versions %q, want %q", got, c.want)
		}
		if v, ok := r.Resolve("subject"); !ok || v != c.want[len(c.want)-1] {
			t.Errorf("%q: a new instance gets %q", c.registered, v)
		}
	}
}

func TestVersionsAreSemantic(t *testing.T) {
	for _, v := range []string{"0.0.1", "1.4.2", "10.20.30", "1.0.0-rc.1", "1.0.0-a-b.c"} {
		if _, err := orchestration.NewRegistry(version(v)); err != nil {
			t.Errorf("%s: %v", v, err)
		}
	}
	for _, v := range []string{"1", "1.2", "v1.2.3", "1.2.3.4", "01.2.3", "1.2.3-", "1.2.3+build", "1.2.3-rc+build",
		"latest", " 1.2.3", "1.2.3\n",
		"1.2.3-" + strings.Repeat("a", 200)} {
		if _, err := orchestration.NewRegistry(version(v)); err == nil {
			t.Errorf("%q was taken for a version", v)
		}
	}
}

func TestPin(t *testing.T) {
	r := registry(t, version("1.0.0"), version("2.0.0"))
	resolves := func(want string) {
		t.Helper()
		if v, ok := r.Resolve("subject"); !ok || v != want {
			t.Errorf("a new instance gets %q, want %q", v, want)
		}
	}
	must(t, r.Pin("subject", "1.0.0"))
	resolves("1.0.0")
	err := r.Pin("subject", "3.0.0")
	mustSay(t, err, `orchestration "subject" has no version "3.0.0"; registered are 1.0.0, 2.0.0`)
	resolves("1.0.0")
	must(t, r.Pin("subject", ""))
	resolves("2.0.0")
	mustSay(t, r.Pin("nobody", "1.0.0"), `orchestration "nobody" is not registered`)
}

func TestPinConcurrently(t *testing.T) {
	r := registry(t, version("1.0.0"), version("2.0.0"))
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 100 {
				if err := r.Pin("subject", []string{"1.0.0", ""}[i%2]); err != nil {
					t.Error(err)
				}
				if v, ok := r.Resolve("subject"); !ok || v != "1.0.0" && v != "2.0.0" {
					t.Errorf("version %q", v)
				}
			}
		})
	}
	all.Wait()
}

func TestBindingSaysWhatItIsFor(t *testing.T) {
	if b := subject.Bind(nothing); b.Name() != "subject" || b.Version() != "1.0.0" {
		t.Errorf("%s %s", b.Name(), b.Version())
	}
	if b := version("2.1.0"); b.Version() != "2.1.0" {
		t.Errorf("version %s", b.Version())
	}
}
