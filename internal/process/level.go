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

// LevelMethod is the name of the discovery request about log levels. It is for operators: a client
// that may ask all questions could silence the logs of all services.
//
//	nats req --replies 0 rondo.operator.loglevel '{"level":"debug","for":"5m"}'
const LevelMethod = broker.ForOperators + "loglevel"

// Change asks processes to change their log level. The zero value only reads it.
type Change struct {
	// Level is debug, info, warn or error.
	Level string `json:"level,omitempty"`
	// For is after how long it goes back, like "5m"; empty: it stays until the process ends.
	For string `json:"for,omitempty"`
	// Process is the id of an orchestrator or a worker; empty: all.
	Process string `json:"process,omitempty"`
}

// Logging is the answer of a process about its log level.
type Logging struct {
	// Command is the command that started the process: dev, orchestrator or worker. IDs are those
	// of the services in it.
	Command string   `json:"command"`
	IDs     []string `json:"ids"`
	Level   string   `json:"level"`
	// Until is when the level changes back to the one before; zero if it stays.
	Until time.Time `json:"until,omitzero"`
	// Problem says why the level was not changed.
	Problem string `json:"problem,omitempty"`
}

// Leveled is a log level that can be changed.
type Leveled interface {
	// Set changes the level, for a while if that is not 0. By names the source of the change.
	Set(level string, after time.Duration, by string) error
	State() (level string, until time.Time)
}

// HandleLevel answers requests about the log level of this process, in which services with these
// ids run, until stop is called.
func HandleLevel(b broker.Discovery, command string, ids []string, level Leveled) (stop func(), err error) {
	return b.HandleDiscovery(LevelMethod, func(_ context.Context, question []byte) ([]byte, error) {
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

// Levels asks all processes for their log levels, and changes those of the processes that c names.
// It leaves out the others. It is not an error if none answers.
func Levels(ctx context.Context, b broker.Discovery, c Change) ([]Logging, error) {
	question, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	answers, err := b.Discover(ctx, LevelMethod, question, quiet)
	if errors.Is(err, broker.ErrNoResponders) {
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
