package rondotest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/orchestration"
	"github.com/rondo-run/rondo/pkg/round"
)

// Export gives the history of the current execution of an instance, as [Replay] reads it.
func (e *Env) Export(id string) []byte {
	e.t.Helper()
	row, ok := e.row(id)
	if !ok {
		e.t.Fatalf("rondotest: there is no instance %q to export", id)
	}
	return export(e, id, row.Execution)
}

// ExportAll gives the histories of all executions of an instance, oldest first.
func (e *Env) ExportAll(id string) [][]byte {
	e.t.Helper()
	row, _ := e.row(id)
	var all [][]byte
	for x := int64(1); x <= row.Execution; x++ {
		all = append(all, export(e, id, x))
	}
	return all
}

func export(e *Env, id string, execution int64) []byte {
	e.t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // the bytes of payloads must come back as they were
	enc.SetIndent("", "  ")
	if err := enc.Encode(events.Export{Instance: id, Execution: execution,
		Events: e.system.store.instances[id].history[execution]}); err != nil {
		e.t.Fatalf("rondotest: %v", err)
	}
	return b.Bytes()
}

// Replay runs today's code along an exported history and fails the test when they do not fit, that
// is when a deployment would halt such an instance. Differences in the data (an activity is now
// called with another input) fail it, too: production lets them pass, but a release should not
// without a decision. [AllowChangedData] lets them pass here.
func Replay(t T, history []byte, parts ...Part) {
	t.Helper()
	if err := TryReplay(history, parts...); err != nil {
		t.Errorf("the code does not replay this history:\n%v", err)
	}
}

// TryReplay is Replay that gives an error.
func TryReplay(history []byte, parts ...Part) error {
	var x events.Export
	if err := json.Unmarshal(history, &x); err != nil {
		return err
	}
	var bindings []orchestration.Binding
	config := round.Config{ShowPayloads: true, CheckGoroutines: true}
	var s settings
	for _, p := range parts {
		switch p := p.(type) {
		case orchestration.Binding:
			bindings = append(bindings, p)
		case option:
			p(&s)
		default:
		}
	}
	code, err := orchestration.NewRegistry(bindings...)
	if err != nil {
		return err
	}
	config.Code, config.Codec = code, s.config.Codec
	warnings, err := round.Replay(&config,
		round.Known{Instance: x.Instance, Row: round.Row{Execution: x.Execution}, History: x.Events})
	if err != nil {
		return err
	}
	if len(warnings) > 0 && !s.changed {
		return fmt.Errorf("%s", strings.Join(warnings, "\n"))
	}
	return nil
}
