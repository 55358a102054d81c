//go:build !unix

package orchestrator

import "time"

// cpuTime is how much CPU time the process has used since it began, where that can be asked.
func cpuTime() (used time.Duration, known bool) { return 0, false }
