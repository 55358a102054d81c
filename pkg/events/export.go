package events

import (
	"encoding/json"
	"fmt"

	"github.com/rondo-run/rondo/internal/x/jsonw"
)

// Export is the history of one execution as a file: the input of a release gate, and of reports to
// developers.
type Export struct {
	Instance  string
	Execution int64
	Events    []Event
}

type wireExport struct {
	Instance  string            `json:"instance"`
	Execution int64             `json:"execution"`
	Events    []json.RawMessage `json:"events"`
}

// MarshalJSON implements [json.Marshaler].
func (x Export) MarshalJSON() ([]byte, error) {
	w := wireExport{Instance: x.Instance, Execution: x.Execution, Events: make([]json.RawMessage, len(x.Events))}
	for i, e := range x.Events {
		data, err := EncodeEvent(e)
		if err != nil {
			return nil, err
		}
		w.Events[i] = data
	}
	return jsonw.Marshal(w)
}

// UnmarshalJSON implements [json.Unmarshaler].
func (x *Export) UnmarshalJSON(data []byte) error {
	var w wireExport
	if err := jsonw.UnmarshalStrict(data, &w); err != nil {
		return fmt.Errorf("exported history: %w", err)
	}
	*x = Export{Instance: w.Instance, Execution: w.Execution, Events: make([]Event, len(w.Events))}
	for i, raw := range w.Events {
		e, err := DecodeEvent(raw)
		if err != nil {
			return fmt.Errorf("exported history: %w", err)
		}
		x.Events[i] = e
	}
	return nil
}
