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
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
)

// Config configures which tasks a worker takes, and how many. The zero value takes tasks without a
// tag.
type Config struct {
	// ID is the name of the worker. If it stays the same over a restart, the worker keeps its
	// sessions. Default: made from the host name.
	ID string
	// Build is the name of the binary, for operators.
	Build string
	// Inside says that the worker is a part of an orchestrator: it executes tasks of the engine
	// only, and does not answer discovery requests as a worker. Metrics count and measure its
	// attempts like those of others.
	Inside bool
	// Paused returns the reason why the worker takes no tasks now, or nil. It nacks those that it
	// has not begun. Default: never.
	Paused func() error `json:"-"`
	// Tags selects the tasks that it takes.
	Tags TagFilter

	// Slots is the maximum number of activities that run at once. Default: 100. SlotsPerTag and
	// SlotsPerActivity are the maximum for a tag (the empty one is for tasks without a tag) and for
	// an activity.
	Slots                         int
	SlotsPerTag, SlotsPerActivity map[string]int
	// RatePerActivity is the maximum number of tasks of an activity that this worker begins per
	// second. A tenth of that may begin at once.
	RatePerActivity map[string]float64

	// MaxTaskCrashes is how many workers may die while they execute an activity task before it
	// fails with the kind poison. Default: 10.
	MaxTaskCrashes int
	// CancelGrace is how long a cancelled activity may take to return before the worker gives it
	// up. Default: 10 seconds. After a time limit, the activity gets at most one second.
	CancelGrace time.Duration
	// ShutdownTimeout is how long running activities may go on at a shutdown. Default: 30 seconds.
	ShutdownTimeout time.Duration

	// MaxSessions is the maximum number of sessions. Default: 10; negative: none.
	MaxSessions int
	// SessionIdle is how long the worker keeps a session without tasks. Default: 5 minutes.
	// SessionLease is the lease of a session in the broker. Default: 30 seconds.
	SessionIdle, SessionLease time.Duration

	// Discover is the interval at which a worker with [Any] looks for new tags. Default: 2 seconds.
	Discover time.Duration
	// Health is the address for /livez, /readyz and /version. Default: none.
	Health string

	// Tracer exports the spans of attempts. Default: none.
	Tracer *telemetry.Tracer
	// Metrics counts and measures attempts. Default: none.
	Metrics *telemetry.Metrics `json:"-"`

	// Codec is that of the orchestrations. Default: JSON.
	Codec codec.Codec
	// LogPayloads lets logs have error texts that may contain the data of users. Otherwise, they
	// have the size and the hash of a text.
	LogPayloads bool
	// Logger receives the log. Default: slog.Default.
	Logger *slog.Logger
}

// maxTags is the maximum number of tags of a worker, each of which means a task queue for each
// activity.
const maxTags = 5

// TagFilter selects tasks by their tag. The zero value is [DefaultOnly].
type TagFilter struct {
	kind tagKind
	tags []string
	none bool // tasks without a tag, too
}

type tagKind int

const (
	defaultOnly tagKind = iota
	listed
	anyTag
	noTag
)

// DefaultOnly takes tasks without a tag.
func DefaultOnly() TagFilter { return TagFilter{} }

// Tags takes tasks with one of the tags, 5 at most, and none without a tag.
func Tags(tags ...string) TagFilter { return TagFilter{kind: listed, tags: slices.Clone(tags)} }

// DefaultAnd takes tasks without a tag, and with one of the tags.
func DefaultAnd(tags ...string) TagFilter {
	return TagFilter{kind: listed, tags: slices.Clone(tags), none: true}
}

// Any takes all tasks, whatever their tag. It finds new tags within seconds.
func Any() TagFilter { return TagFilter{kind: anyTag} }

// None takes no tasks.
func None() TagFilter { return TagFilter{kind: noTag} }

// String describes the filter for operators.
func (f TagFilter) String() string {
	switch f.kind {
	case defaultOnly:
		return "without a tag"
	case anyTag:
		return "any tag"
	case noTag:
		return "none"
	case listed:
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
	case listed:
	}
	if f.none {
		return append([]string{""}, f.tags...)
	}
	return f.tags
}

// withdrawals returns the tags whose withdrawals the worker must know; nil for all.
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
	number(&c.MaxTaskCrashes, 10)
	number(&c.MaxSessions, 10)
	c.MaxSessions = max(c.MaxSessions, 0)
	duration(&c.CancelGrace, 10*time.Second)
	duration(&c.ShutdownTimeout, 30*time.Second)
	duration(&c.SessionIdle, 5*time.Minute)
	duration(&c.SessionLease, 30*time.Second)
	duration(&c.Discover, 2*time.Second)
	if c.ID == "" {
		c.ID = madeUpID()
	}
	if c.Paused == nil {
		c.Paused = func() error { return nil }
	}
	if c.Codec == nil {
		c.Codec = codec.JSON{}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	c.Logger = telemetry.Logger(c.Logger).With("worker", c.ID)
	return c
}

// madeUpID returns an id that no other process has.
func madeUpID() string {
	host, err := os.Hostname()
	if err != nil || events.CheckTag(host) != nil {
		host = "worker"
	}
	chance := make([]byte, 4)
	_, _ = rand.Read(chance) // it never fails
	return fmt.Sprintf("%.100s-%d-%s", host, os.Getpid(), hex.EncodeToString(chance))
}

// check lists everything that is wrong with the configuration.
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
	if c.MaxTaskCrashes < 1 {
		bad("max attempts: %d; want at least 1", c.MaxTaskCrashes)
	}
	for _, d := range []struct {
		name    string
		is, min time.Duration
	}{
		{"grace", c.CancelGrace, time.Millisecond}, {"drain timeout", c.ShutdownTimeout, time.Millisecond},
		{"session idle", c.SessionIdle, time.Millisecond},
		{"session lease", c.SessionLease, time.Second}, {"discover", c.Discover, 10 * time.Millisecond},
	} {
		if d.is < d.min {
			bad("%s: %v; want at least %v", d.name, d.is, d.min)
		}
	}
	return errors.Join(errs...)
}
