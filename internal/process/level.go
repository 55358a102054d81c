package process

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
)

// LevelMethod is the name of the roll call about log levels. It is not [Method], so that who may
// look need not be allowed to change anything.
//
//	nats req --replies 0 rondo.api.loglevel '{"level":"debug","for":"5m"}'
const LevelMethod = "loglevel"

// Change asks processes for a log level. The zero value only asks which it is.
type Change struct {
	// Level is debug, info, warn or error.
	Level string `json:"level,omitempty"`
	// For is after how long it goes back, like "5m"; empty: it stays until the process ends.
	For string `json:"for,omitempty"`
	// Process is the id of an orchestrator or a worker; empty: all.
	Process string `json:"process,omitempty"`
}

// Logging is what a process says of its log level.
type Logging struct {
	// Command is as what it was started: dev, orchestrator or worker. IDs are those of what runs in
	// it.
	Command string   `json:"command"`
	IDs     []string `json:"ids"`
	Level   string   `json:"level"`
	// Until is when it goes back to what it was before; zero if it stays.
	Until time.Time `json:"until,omitzero"`
	// Problem says why it was not changed.
	Problem string `json:"problem,omitempty"`
}

// Leveled is a level that can be changed.
type Leveled interface {
	// Set changes it, for a while if that is not 0. By says who wants it.
	Set(level string, after time.Duration, by string) error
	State() (level string, until time.Time)
}

// AnswerLevel answers for this process, in which orchestrators and workers of these ids run, until
// stop is called.
func AnswerLevel(b broker.RollCalls, command string, ids []string, level Leveled) (stop func(), err error) {
	return b.AnswerToo(LevelMethod, func(_ context.Context, question []byte) ([]byte, error) {
		var c Change
		if len(question) > 0 {
			if err := json.Unmarshal(question, &c); err != nil {
				return nil, errors.New(`a question about log levels looks like {"level":"debug","for":"5m"}`)
			}
		}
		a := Logging{Command: command, IDs: ids}
		if c.Level != "" && (c.Process == "" || slices.Contains(ids, c.Process)) {
			if err := change(level, c); err != nil {
				a.Problem = err.Error()
			}
		}
		a.Level, a.Until = level.State()
		return json.Marshal(a)
	})
}

func change(level Leveled, c Change) (err error) {
	var after time.Duration
	if c.For != "" {
		if after, err = time.ParseDuration(c.For); err != nil || after <= 0 {
			return fmt.Errorf("for: %.40q is not a duration like 90s or 5m", c.For)
		}
	}
	return level.Set(c.Level, after, "over NATS")
}

// Levels asks all processes for their log levels, and changes those that are meant. Those that are
// not meant are left out. It is not an error that there are none.
func Levels(ctx context.Context, b broker.RollCalls, c Change) ([]Logging, error) {
	question, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	answers, err := b.AskAll(ctx, LevelMethod, question, quiet)
	if errors.Is(err, broker.ErrNobody) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []Logging
	for _, a := range answers {
		var l Logging
		if err := json.Unmarshal(a, &l); err != nil || l.Level == "" || c.Process != "" &&
			!slices.Contains(l.IDs, c.Process) {
			continue
		}
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b Logging) int {
		return cmp.Or(cmp.Compare(a.Command, b.Command), slices.Compare(a.IDs, b.IDs))
	})
	return all, nil
}
