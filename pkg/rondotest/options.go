package rondotest

import (
	"io"
	"log/slog"
	"time"

	"github.com/rondo-run/rondo/pkg/activity"
	"github.com/rondo-run/rondo/pkg/codec"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/round"
)

// Part is what an environment is made of: orchestrations and activities bound to their code, and
// the options of this package.
type Part = orchestration.Part

// settings are what the options of this package set.
type settings struct {
	config round.Config
	cold   bool
	// changed lets the same code give other data than before.
	changed bool
	chaos   *chaos
	trace   io.Writer
	log     *slog.Logger
	start   *time.Time // where the next deployment sets the clock; nil: it stays
}

func (s *settings) codec() codec.Codec {
	if s.config.Codec == nil {
		return codec.JSON{}
	}
	return s.config.Codec
}

type option func(*settings)

// RondoPart implements Part.
func (option) RondoPart() {}

// Cold forgets every instance before each round, so that each round is a replay. A test that passes
// without it and fails with it has found code that does not replay.
func Cold() Part { return option(func(s *settings) { s.cold = true }) }

// StartAt sets the clock, which otherwise starts at the beginning of 2026.
func StartAt(t time.Time) Part {
	return option(func(s *settings) {
		at := events.Instant(t)
		s.start = &at
	})
}

// AllowChangedData lets a test pass whose code gives a call other data in a replay than it was
// recorded with. In an environment, the recorded data stands, and [Env.Warnings] names the call.
// [Replay] passes if the code does the same things with other data.
func AllowChangedData() Part { return option(func(s *settings) { s.changed = true }) }

// UseCodec sets the codec.
func UseCodec(c codec.Codec) Part { return option(func(s *settings) { s.config.Codec = c }) }

// FailNondeterminism lets an instance whose code does not fit its history fail; otherwise it is
// halted, as in production.
func FailNondeterminism() Part {
	return option(func(s *settings) { s.config.FailNondeterminism = true })
}

// Trace writes down every round: its messages and its turn.
func Trace(w io.Writer) Part { return option(func(s *settings) { s.trace = w }) }

// Takes makes an activity last, in virtual time. Its code runs when that time is over.
func Takes(b activity.Binding, d time.Duration) Part { return slow{b, d} }

type slow struct {
	binding activity.Binding
	takes   time.Duration
}

// RondoPart implements Part.
func (slow) RondoPart() {}
