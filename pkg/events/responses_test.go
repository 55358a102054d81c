package events_test

import (
	"strings"
	"testing"

	"github.com/rondo-run/rondo/pkg/events"
)

// TestResponsesOfNATSAreNoMessages decodes responses that NATS sends to any subject that a
// publisher or a requester names, and messages that only look similar.
func TestResponsesOfNATSAreNoMessages(t *testing.T) {
	t.Parallel()
	const info = `{"type":"io.nats.jetstream.api.v1.stream_info_response","total":0,"offset":0,"limit":0}`
	for name, c := range map[string]struct {
		header events.Header
		body   string
		want   bool
	}{
		"an acknowledgement":      {body: `{"stream":"RONDO","seq":7}`},
		"a refusal":               {body: `{"error":{"code":400},"stream":"RONDO","seq":0}`},
		"a response of the API":   {body: info},
		"a message that was read": {header: events.Header{"Nats-Stream": {"RONDO_TASKS"}, "Nats-Sequence": {"7"}}},
		"a task that was read": {header: events.Header{"Nats-Stream": {"RONDO_TASKS"}, "Nats-Sequence": {"7"},
			"Rondo-Id": {"w"}}, body: "7"},
		"such a body with an id":         {events.Header{"Rondo-Id": {"x"}}, info, true},
		"a header Status":                {events.Header{"Status": {"404"}}, "", true},
		"a header of NATS, and no other": {events.Header{"Nats-Stream": {"RONDO"}}, "", true},
		"nothing":                        {want: true},
	} {
		_, err := events.Decode("rondo", "rondo.control.terminate.order-1", c.header, []byte(c.body), "1@2")
		if c.want != (err == nil) || err != nil && !strings.Contains(err.Error(), "NATS sent") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
