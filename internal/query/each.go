package query

import "time"

// HeaderEach, if it says "true", makes each delivery of a start begin an instance of its own
// ([EachInstance]): for schedules, which publish the same start again and again.
const HeaderEach = "Rondo-Each"

// EachInstance is the id of the instance that a start with [HeaderEach] begins: that of the
// schedule, and when the broker stored the start. It is the same when the start is delivered again.
func EachInstance(schedule string, stored time.Time) string {
	return schedule + "@" + stored.UTC().Truncate(time.Second).Format(time.RFC3339)
}
