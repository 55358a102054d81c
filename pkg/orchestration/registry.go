package orchestration

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/mod/semver"

	"github.com/rondo-run/rondo/internal/coro"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/failure"
)

// Part is what programs and test environments are made of: code bound to its contract (a [Binding],
// that of package activity), and the options of packages app and rondotest.
type Part = interface{ RondoPart() }

// Binding is the code of one version of an orchestration, made by [Definition.Bind].
type Binding struct {
	name, version string
	code          coro.Func
	input         inputType
	kept          map[string]kept // by the name of the event
	err           error
}

// keep says how instances keep events for which they do not wait yet.
type keep struct {
	most   int
	latest bool
}

// kept is an event that instances keep.
type kept struct {
	keep
	event AnyEvent
}

// Name is the name of the orchestration that the code implements.
func (b Binding) Name() string { return b.name }

// Version is the version of the orchestration that the code implements.
func (b Binding) Version() string { return b.version }

// Registry holds the code that this process knows. It is safe for concurrent use.
type Registry struct {
	source
	code map[string]map[string]Binding // name, version

	mu   sync.RWMutex
	pins map[string]string
}

// source gives the code to the engine.
type source = coro.Finder

// NewRegistry makes a registry. The error lists everything that is wrong with the bindings, not
// just the first thing.
func NewRegistry(bindings ...Binding) (*Registry, error) {
	r := &Registry{code: make(map[string]map[string]Binding), pins: make(map[string]string)}
	r.source = r.find
	var errs []error
	for _, b := range bindings {
		if err := r.add(b); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("orchestrations cannot be registered:\n%w", errors.Join(errs...))
	}
	return r, nil
}

func (r *Registry) add(b Binding) error {
	if err := events.CheckName("orchestration", b.name); err != nil {
		return err
	}
	if b.err != nil {
		return fmt.Errorf("orchestration %q: %w", b.name, b.err)
	}
	if b.version == "" {
		return fmt.Errorf("orchestration %q: its version is empty; write it like 1.0.0", b.name)
	}
	if err := checkVersion(b.version); err != nil {
		return fmt.Errorf("orchestration %q: %w", b.name, err)
	}
	versions := r.code[b.name]
	if versions == nil {
		versions = make(map[string]Binding)
		r.code[b.name] = versions
	}
	if _, twice := versions[b.version]; twice {
		return fmt.Errorf("orchestration %q version %s is registered twice; give the new code a new version",
			b.name, b.version)
	}
	versions[b.version] = b
	return nil
}

// checkVersion wants a full semantic version, or none.
func checkVersion(v string) error {
	if v == "" {
		return nil
	}
	if len(v) > events.MaxName || !semver.IsValid("v"+v) || strings.Count(strings.SplitN(v, "-", 2)[0], ".") != 2 ||
		strings.Contains(v, "+") {
		return fmt.Errorf("version %q is not a semantic version; write it like 1.4.2", v)
	}
	return nil
}

// Has reports whether a version of an orchestration is registered.
func (r *Registry) Has(name, version string) bool {
	_, ok := r.code[name][version]
	return ok
}

func (r *Registry) find(name, version string) (coro.Func, bool) {
	b, ok := r.code[name][version]
	return b.code, ok
}

// CheckInput tells why a version cannot be started with an input, nil if it can. Strict refuses
// fields that the input's type does not have, unless the orchestration was bound with
// [IgnoreUnknownFields], and a missing input.
func (r *Registry) CheckInput(name, version string, enc codec.Codec, input codec.Payload,
	strict bool) *failure.Error {
	b, ok := r.code[name][version]
	if !ok {
		return nil // looking it up gives the error
	}
	if err := b.input.check(enc, input, strict && !b.input.lenient); err != nil {
		return &failure.Error{Kind: failure.Application, Type: TypeMismatch, NonRetryable: true,
			Message: "invalid input: " + err.Error()}
	}
	return nil
}

// Keeps tells how many events of a name the instances of a version keep that come before they wait
// for them; 0: none. Beyond that they refuse events, or, with latest, drop the oldest one. See
// [Buffered].
func (r *Registry) Keeps(name, version, event string) (most int, latest bool) {
	k := r.code[name][version].kept[event]
	return k.most, k.latest
}

// CheckKept tells why data is not of the type of an event that instances of a version keep, nil if
// it is. Strict refuses fields that the type does not have, and missing data.
func (r *Registry) CheckKept(name, version, event string, enc codec.Codec, data codec.Payload, strict bool) error {
	k, ok := r.code[name][version].kept[event]
	if !ok {
		return nil
	}
	return k.event.accepts(enc)(data, strict)
}

// ExampleInput gives an input as JSON that the version for new instances accepts, as a template for
// clients; nothing if there is no such input.
func (r *Registry) ExampleInput(name string) codec.Payload {
	version, _ := r.Resolve(name)
	b, ok := r.code[name][version]
	if !ok {
		return nil
	}
	return b.input.example()
}

// Resolve tells which version a new instance gets that does not ask for one: the pinned one,
// otherwise the newest release, otherwise the newest pre-release.
func (r *Registry) Resolve(name string) (string, bool) {
	r.mu.RLock()
	pin, pinned := r.pins[name]
	r.mu.RUnlock()
	if pinned {
		return pin, true
	}
	versions := r.Versions(name)
	if len(versions) == 0 {
		return "", false
	}
	return newest(versions), true
}

// Pin makes new instances of an orchestration take exactly this version, until it is pinned to
// another one, or to "" for the newest. Running instances keep theirs.
func (r *Registry) Pin(name, version string) error {
	if version != "" && !r.Has(name, version) {
		known := r.Versions(name)
		if len(known) == 0 {
			return fmt.Errorf("orchestration %q is not registered", name)
		}
		return fmt.Errorf("orchestration %q has no version %q; registered are %s", name, version,
			strings.Join(known, ", "))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if version == "" {
		delete(r.pins, name)
	} else {
		r.pins[name] = version
	}
	return nil
}

// newest gives the newest release; a pre-release only if there is nothing else.
func newest(versions []string) string {
	for _, v := range slices.Backward(versions) {
		if semver.Prerelease("v"+v) == "" {
			return v
		}
	}
	return versions[len(versions)-1]
}

// Versions lists the versions of an orchestration, oldest first.
func (r *Registry) Versions(name string) []string {
	versions := make([]string, 0, len(r.code[name]))
	for v := range r.code[name] {
		versions = append(versions, v)
	}
	slices.SortFunc(versions, func(a, b string) int { return semver.Compare("v"+a, "v"+b) })
	return versions
}

// Names lists all orchestrations, sorted.
func (r *Registry) Names() []string {
	names := make([]string, 0, len(r.code))
	for n := range r.code {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

func quote(s string) string { return strconv.Quote(s) }

// RondoPart marks what a program is made of.
func (Binding) RondoPart() {}
