package events

import "github.com/rondo-run/rondo/internal/x/jsonw"

// AppendFact is appendFact, and Marshal what it has to agree with.
var (
	AppendFact = appendFact
	Marshal    = jsonw.Marshal
)
