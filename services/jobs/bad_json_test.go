package jobserver

import (
	"encoding/json"
	"testing"
)

// TestAWrongTypeIsNamed: the problem names the field as the caller has written it, and both types.
func TestAWrongTypeIsNamed(t *testing.T) {
	for body, want := range map[string]string{
		`{"priority":"high"}`:  "priority: want a whole number, got a string",
		`{"priority":[]}`:      "priority: want a whole number, got a list",
		`{"priority":1.5}`:     "priority: want a whole number, got a number 1.5",
		`{"delay_seconds":{}}`: "delay_seconds: want a number, got an object",
		`[]`:                   "the body: want an object, got a list",
	} {
		if err := badJSON(json.Unmarshal([]byte(body), new(pushBody))); err == nil || err.Error() != want {
			t.Errorf("%s: %v; want %s", body, err, want)
		}
	}
	if err := badJSON(json.Unmarshal([]byte(`{"lock_id":true}`), new(lockBody))); err == nil ||
		err.Error() != "lock_id: want a string, got true or false" {
		t.Errorf("a lock id: %v", err)
	}
}
