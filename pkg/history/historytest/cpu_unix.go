//go:build unix

package historytest

import (
	"syscall"
	"time"
)

// ownCPU is the CPU time that this process has spent.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
