//go:build unix

package orchestrator

import (
	"syscall"
	"time"
)

// cpuTime is how much CPU time the process has used since it began.
func cpuTime() (used time.Duration, known bool) {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0, false
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), true
}
