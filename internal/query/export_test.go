package query

import (
	"time"

	"github.com/rondo-run/rondo/internal/broker"
)

// NewPatientReader makes a Reader that asks again only if an answer is lost: on a busy machine, an
// answer of several megabytes may take longer than a Reader waits for it.
func NewPatientReader(questions broker.Requests) *Reader { return &Reader{questions, 5 * time.Minute} }
