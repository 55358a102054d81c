package main

import (
	"os"
	"time"
)

// syncTime is how long it takes to write 8 KB through to the disk where a database is, in the
// median: what each commit costs at least.
func syncTime(dir string) (time.Duration, error) {
	const times, size = 200, 8 << 10
	f, err := os.CreateTemp(dir, "sync-")
	if err != nil {
		return 0, err
	}
	defer func() {
		_ = f.Close() // its content is worth nothing
		_ = os.Remove(f.Name())
	}()
	// As in a log that a database reuses, the room is there before.
	if _, err := f.Write(make([]byte, times*size)); err != nil {
		return 0, err
	}
	if err := f.Sync(); err != nil {
		return 0, err
	}
	took := make([]float64, 0, times)
	for i := range times {
		begun := time.Now()
		if _, err := f.WriteAt(make([]byte, size), int64(i*size)); err != nil {
			return 0, err
		}
		if err := datasync(f); err != nil {
			return 0, err
		}
		took = append(took, float64(time.Since(begun)))
	}
	return time.Duration(median(took)), nil
}
