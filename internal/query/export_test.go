package query

import "time"

// NewHastyReader makes a Reader that sends a request to another orchestrator almost at once.
func NewHastyReader(b Requester) *Reader { return &Reader{b, 5 * time.Minute, time.Millisecond} }

// NewPatientReader makes a Reader that asks again only if an answer is lost: on a busy machine, an
// answer of several megabytes may take longer than a Reader waits for it.
func NewPatientReader(b Requester) *Reader { return &Reader{b, 5 * time.Minute, time.Minute} }
