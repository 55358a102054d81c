package jobs

import (
	"fmt"
	"time"
)

// Mode is whether locks exclude each other.
type Mode string

// The modes.
const (
	Exclusive  Mode = "exclusive"
	Concurrent Mode = "concurrent"
)

// Check returns an error unless the mode is valid; an empty one is.
func (m Mode) Check() error {
	switch m {
	case "", Exclusive, Concurrent:
		return nil
	}
	return &InvalidError{fmt.Sprintf("mode: there is no %q; there are %s and %s", string(m), Exclusive, Concurrent)}
}

// Settings are the configuration of a queue. The zero value is that of a queue without one, see
// WithDefaults.
type Settings struct {
	// Priorities is their number: 0, the highest, to Priorities-1.
	Priorities int `json:"priorities,omitempty"`
	// Mode is that of pops without one.
	Mode Mode `json:"mode,omitempty"`
	// TTL is that of pops without one, in seconds.
	TTL int `json:"ttl_seconds,omitempty"`
	// MaxAttempts is the number of locks after which a returned job is dead; 0 for never.
	MaxAttempts int `json:"max_attempts,omitempty"`
	// MaxJobs bounds the jobs of the queue, dead ones included; 0 for no bound.
	MaxJobs int `json:"max_items,omitempty"`
	// Start has orchestrators start an instance for each job.
	Start *Start `json:"start,omitempty"`
}

// Start describes the instance to start for each job.
type Start struct {
	// Orchestration is its name, Version its version; empty for that of other new instances.
	Orchestration string `json:"orchestration"`
	Version       string `json:"version,omitempty"`
	// MaxPerSecond bounds the starts in a second; 0 for no bound.
	MaxPerSecond float64 `json:"max_per_second,omitempty"`
}

// The defaults.
const (
	DefaultPriorities = 100
	maxPriorities     = 1000
	maxAttempts       = 1_000_000
	maxStart          = 1024
)

// WithDefaults replaces zero values by the defaults.
func (s Settings) WithDefaults() Settings {
	if s.Priorities == 0 {
		s.Priorities = DefaultPriorities
	}
	if s.Mode == "" {
		s.Mode = Exclusive
	}
	if s.TTL == 0 {
		s.TTL = int(DefaultTTL / time.Second)
	}
	return s
}

// Check returns an error if the settings are not valid.
func (s Settings) Check() error {
	bad := func(format string, args ...any) error { return &InvalidError{fmt.Sprintf(format, args...)} }
	switch {
	case s.Priorities < 0 || s.Priorities > maxPriorities:
		return bad("priorities: %d; want 1 to %d", s.Priorities, maxPriorities)
	case s.TTL < 0 || s.TTL > int(MaxTTL/time.Second):
		return bad("ttl_seconds: %d; want 1 to %d", s.TTL, int(MaxTTL/time.Second))
	case s.MaxAttempts < 0 || s.MaxAttempts > maxAttempts:
		return bad("max_attempts: %d; want 0, for any number, to %d", s.MaxAttempts, maxAttempts)
	case s.MaxJobs < 0:
		return bad("max_items: %d; want at least 0, which is for any number", s.MaxJobs)
	case s.Start != nil && s.Start.Orchestration == "":
		return bad("start: which orchestration? Give its name")
	case s.Start != nil && len(s.Start.Orchestration)+len(s.Start.Version) > maxStart:
		// every change of the queue writes it again
		return bad("start: orchestration and version together have more than %d bytes", maxStart)
	case s.Start != nil && !(s.Start.MaxPerSecond >= 0 && s.Start.MaxPerSecond <= 1e6):
		return bad("start: max_per_second: %v; want 0, which is for no bound, to 1000000", s.Start.MaxPerSecond)
	}
	return s.Mode.Check()
}
