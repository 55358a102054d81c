package worker

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/rondo-run/rondo/internal/telemetry"
	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/events"
)

// Config says which work a worker takes, and how much of it. The zero value takes work without a
// tag.
type Config struct {
	// ID is what the worker is known by. One that stays the same over a restart keeps the worker's
	// sessions. Empty: made up from the machine's name.
	ID string
	// Build says which binary it is, for people.
	Build string
	// Inside says that it is a part of an orchestrator: nobody is told of it as a worker. What it
	// does is counted and measured like that of others.
	Inside bool
	// Tags says which work it takes.
	Tags TagFilter

	// Slots is how many activities run at once: 100. SlotsPerTag and SlotsPerActivity bound those
	// of a tag (the empty one is for work without a tag) and those of an activity.
	Slots                         int
	SlotsPerTag, SlotsPerActivity map[string]int
	// RatePerActivity is how many of an activity this worker begins in a second, at most. A tenth
	// of that may come at once.
	RatePerActivity map[string]float64

	// MaxAttempts is how often work is begun whose worker dies with it: 10.
	MaxAttempts int
	// Grace is how long an activity that is cancelled may take to return before it is given up: 10
	// seconds. One whose time is over gets a second of it at most.
	Grace time.Duration
	// DrainTimeout is how long what runs may go on when the worker is told to end: 30 seconds.
	DrainTimeout time.Duration

	// MaxSessions is how many sessions it has at once: 10. Negative: none.
	MaxSessions int
	// SessionIdle is how long it keeps a session that has no work: 5 minutes. SessionLease is how
	// long the bus keeps a session whose worker says nothing: 30 seconds.
	SessionIdle, SessionLease time.Duration

	// Discover is how often a worker with [Any] looks for new tags: 2 seconds.
	Discover time.Duration
	// Health is the address for /livez, /readyz and /version. Empty: none.
	Health string

	// Tracer is told of attempts; nil: nobody is.
	Tracer *telemetry.Tracer
	// Metrics counts and measures what is done; nil: nobody does.
	Metrics *telemetry.Metrics `json:"-"`

	// Codec is that of the orchestrations; nil is JSON.
	Codec events.Codec
	// LogPayloads lets logs tell texts of errors that may have the data of users in them. Otherwise
	// they tell their size and hash.
	LogPayloads bool
	// Logger gets what operators should know; nil is slog.Default.
	Logger *slog.Logger
}

// maxTags bounds the tags of a worker, each of which means a queue for each activity.
const maxTags = 5

// TagFilter says which work a worker takes, by its tag. The zero value is [DefaultOnly].
type TagFilter struct {
	kind tagKind
	tags []string
	none bool // work without a tag, too
}

type tagKind int

const (
	defaultOnly tagKind = iota
	listed
	anyTag
	noTag
)

// DefaultOnly takes work without a tag.
func DefaultOnly() TagFilter { return TagFilter{} }

// Tags takes work with one of the tags, 5 at most, and none without.
func Tags(tags ...string) TagFilter { return TagFilter{kind: listed, tags: slices.Clone(tags)} }

// DefaultAnd takes work without a tag, and with one of the tags.
func DefaultAnd(tags ...string) TagFilter {
	return TagFilter{kind: listed, tags: slices.Clone(tags), none: true}
}

// Any takes all work, whatever its tag. New tags are found within seconds.
func Any() TagFilter { return TagFilter{kind: anyTag} }

// None takes no work.
func None() TagFilter { return TagFilter{kind: noTag} }

// String says it for people.
func (f TagFilter) String() string {
	switch f.kind {
	case defaultOnly:
		return "without a tag"
	case anyTag:
		return "any tag"
	case noTag:
		return "none"
	}
	if f.none {
		return strings.Join(append([]string{"without a tag"}, f.tags...), ", ")
	}
	return strings.Join(f.tags, ", ")
}

// first lists the tags that are known from the beginning.
func (f TagFilter) first() []string {
	switch f.kind {
	case defaultOnly, anyTag:
		return []string{""}
	case noTag:
		return nil
	}
	if f.none {
		return append([]string{""}, f.tags...)
	}
	return f.tags
}

// withdrawals are the tags whose withdrawals are of interest; nil for all.
func (f TagFilter) withdrawals() []string {
	if f.kind == anyTag {
		return nil
	}
	return f.first()
}

func (f TagFilter) check() error {
	if f.kind != listed {
		return nil
	}
	var errs []error
	if len(f.tags) == 0 {
		errs = append(errs, errors.New("tags: none is given; DefaultOnly takes work without a tag, None takes nothing"))
	}
	if len(f.tags) > maxTags {
		errs = append(errs, fmt.Errorf(
			"tags: %d are over the limit of %d; run another worker for the others, or one with Any",
			len(f.tags), maxTags))
	}
	for i, t := range f.tags {
		if t == "" {
			errs = append(errs, errors.New("tags: one is empty; DefaultAnd takes work without a tag, too"))
		} else {
			errs = append(errs, events.CheckTag(t))
		}
		if slices.Contains(f.tags[:i], t) {
			errs = append(errs, fmt.Errorf("tag %q is given twice", t))
		}
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	number := func(n *int, otherwise int) {
		if *n == 0 {
			*n = otherwise
		}
	}
	duration := func(d *time.Duration, otherwise time.Duration) {
		if *d == 0 {
			*d = otherwise
		}
	}
	number(&c.Slots, 100)
	number(&c.MaxAttempts, 10)
	number(&c.MaxSessions, 10)
	c.MaxSessions = max(c.MaxSessions, 0)
	duration(&c.Grace, 10*time.Second)
	duration(&c.DrainTimeout, 30*time.Second)
	duration(&c.SessionIdle, 5*time.Minute)
	duration(&c.SessionLease, 30*time.Second)
	duration(&c.Discover, 2*time.Second)
	if c.ID == "" {
		c.ID = madeUpID()
	}
	if c.Codec == nil {
		c.Codec = events.JSON{}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	c.Logger = telemetry.Logger(c.Logger).With("worker", c.ID)
	return c
}

// madeUpID tells one process from all others.
func madeUpID() string {
	host, err := os.Hostname()
	if err != nil || events.CheckTag(host) != nil {
		host = "worker"
	}
	chance := make([]byte, 4)
	_, _ = rand.Read(chance) // it never fails
	return fmt.Sprintf("%.100s-%d-%s", host, os.Getpid(), hex.EncodeToString(chance))
}

// check lists everything that is wrong with it.
func (c Config) check(code *activity.Registry) error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if err := events.CheckText("worker id", c.ID); err != nil {
		errs = append(errs, err)
	} else if len(c.ID) > events.MaxName {
		bad("worker id: %d bytes are over the limit of %d", len(c.ID), events.MaxName)
	}
	errs = append(errs, c.Tags.check())
	if c.Slots < 1 {
		bad("slots: %d; want at least 1", c.Slots)
	}
	for _, tag := range slices.Sorted(maps.Keys(c.SlotsPerTag)) {
		if n := c.SlotsPerTag[tag]; n < 1 {
			bad("slots of tag %q: %d; want at least 1", tag, n)
		}
	}
	known := func(name string) bool { _, ok := code.Lookup(name); return ok }
	for _, name := range slices.Sorted(maps.Keys(c.SlotsPerActivity)) {
		switch n := c.SlotsPerActivity[name]; {
		case !known(name):
			bad("slots of activity %q: no such activity is registered", name)
		case n < 1:
			bad("slots of activity %q: %d; want at least 1", name, n)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.RatePerActivity)) {
		switch r := c.RatePerActivity[name]; {
		case !known(name):
			bad("rate of activity %q: no such activity is registered", name)
		case !(r > 0 && r <= 1e6):
			bad("rate of activity %q: %v in a second; want more than 0, and at most a million", name, r)
		}
	}
	if c.MaxAttempts < 1 {
		bad("max attempts: %d; want at least 1", c.MaxAttempts)
	}
	for _, d := range []struct {
		name    string
		is, min time.Duration
	}{
		{"grace", c.Grace, time.Millisecond}, {"drain timeout", c.DrainTimeout, time.Millisecond},
		{"session idle", c.SessionIdle, time.Millisecond},
		{"session lease", c.SessionLease, time.Second}, {"discover", c.Discover, 10 * time.Millisecond},
	} {
		if d.is < d.min {
			bad("%s: %v; want at least %v", d.name, d.is, d.min)
		}
	}
	return errors.Join(errs...)
}
