//go:build !unix

package historytest

import "time"

// ownCPU is 0: it is not measured here.
func ownCPU() time.Duration { return 0 }
