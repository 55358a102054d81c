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
	"github.com/rondo-run/rondo/pkg/events"
)

// Binding is the code of one version of an orchestration, made by [Definition.With].
type Binding struct {
	name, version string
	code          coro.Func
	input         inputType
	err           error
}

// Name and Version tell what the binding is for.
func (b Binding) Name() string    { return b.name }
func (b Binding) Version() string { return b.version }

// Registry holds the code that this process knows. It is safe for concurrent use.
type Registry struct {
	code map[string]map[string]Binding // name, version

	mu   sync.RWMutex
	pins map[string]string
}

// NewRegistry makes a registry. The error lists everything that is wrong with the bindings, not
// just the first thing.
func NewRegistry(bindings ...Binding) (*Registry, error) {
	r := &Registry{code: make(map[string]map[string]Binding), pins: make(map[string]string)}
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

// Lookup finds the code of a version.
func (r *Registry) Lookup(name, version string) (coro.Func, bool) {
	b, ok := r.code[name][version]
	return b.code, ok
}

// CheckInput tells why a version cannot be started with an input, nil if it can. Strict refuses
// fields that the input's type does not have, unless the orchestration was bound with
// [IgnoreUnknownFields], and a missing input.
func (r *Registry) CheckInput(name, version string, codec events.Codec, input events.Payload,
	strict bool) *events.Error {
	b, ok := r.code[name][version]
	if !ok {
		return nil // whoever looks it up says so
	}
	if err := b.input.check(codec, input, strict && !b.input.lenient); err != nil {
		return &events.Error{Kind: events.Application, Type: TypeMismatch, Final: true,
			Message: "invalid input: " + err.Error()}
	}
	return nil
}

// ExampleInput gives an input that the version which new instances take accepts, as JSON, for
// people to begin with; nothing if none can be made up.
func (r *Registry) ExampleInput(name string) events.Payload {
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
	if _, ok := r.Lookup(name, version); !ok && version != "" {
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
