package jobserver

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// readEvery is the shortest interval between two reads of the files.
const readEvery = time.Second

// kept is a value that is made from files, and made again when they have changed. Only the caller
// that notices the change waits for that. get reads the files instead of their times, because it
// would miss a change within a second, or one that keeps size and time; they are small.
type kept[T any] struct {
	what  string
	paths []string
	make  func(data [][]byte) (T, error)
	log   *slog.Logger
	// elapsed is the time since a moment. It is not that of the wall clock, which may be set back.
	elapsed func() time.Duration

	is   atomic.Pointer[T]
	next atomic.Int64 // the elapsed time at which they are read again

	mu    sync.Mutex // held during a read
	tried [][]byte   // their contents at the last read, or nil
	said  string     // the last error that was logged
}

// sinceNow returns the time that has elapsed since the call, whatever happens to the wall clock.
func sinceNow() func() time.Duration {
	start := time.Now()
	return func() time.Duration { return time.Since(start) }
}

// keep reads files for the first time. log may be nil.
func keep[T any](what string, paths []string, make func([][]byte) (T, error), log *slog.Logger,
	elapsed func() time.Duration) (*kept[T], error) {
	k := &kept[T]{what: what, paths: paths, make: make, log: cmp.Or(log, slog.New(slog.DiscardHandler)),
		elapsed: elapsed}
	data, err := k.read()
	if err != nil {
		return nil, err
	}
	is, err := make(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	k.tried = data
	k.is.Store(&is)
	k.next.Store(int64(elapsed() + readEvery))
	return k, nil
}

func (k *kept[T]) read() (data [][]byte, err error) {
	for _, path := range k.paths {
		text, err := os.ReadFile(path)
		var of *fs.PathError
		if errors.As(err, &of) {
			return nil, fmt.Errorf("%s: cannot read %s: %w", k.what, path, of.Err)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", k.what, err)
		}
		data = append(data, text)
	}
	return data, nil
}

// get returns the value of the files as they are, or as they were a second ago.
func (k *kept[T]) get() T {
	if now := k.elapsed(); int64(now) >= k.next.Load() && k.mu.TryLock() {
		k.look()
		k.next.Store(int64(now + readEvery))
		k.mu.Unlock()
	}
	return *k.is.Load()
}

// look reads the files again. A broken file changes nothing, and is logged once.
func (k *kept[T]) look() {
	data, err := k.read()
	if err == nil {
		if slices.EqualFunc(data, k.tried, bytes.Equal) {
			return
		}
		var is T
		if is, err = k.make(data); err == nil {
			k.is.Store(&is)
			k.log.LogAttrs(context.Background(), slog.LevelInfo, "read again: "+k.what)
			k.tried, k.said = data, ""
			return
		}
		err = fmt.Errorf("%s: %w", k.what, err)
	}
	k.tried = data // also nil: when the files are back, they are read
	if text := err.Error(); text != k.said {
		k.said = text
		k.log.LogAttrs(context.Background(), slog.LevelError,
			"a file has changed and is broken; what it said before still holds until it is repaired",
			slog.String("error", text))
	}
}
