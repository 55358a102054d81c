//go:build !linux

package main

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// supported reports whether processes can be measured here.
const supported = false

var errUnsupported = errors.New("processes can be measured on Linux only")

func serviceAttributes() *syscall.SysProcAttr { return nil }

type usage struct {
	cpu time.Duration
	rss int64
}

type machineTimes struct{ all, busy, stolen time.Duration }

func usageOf(int) (usage, error)                       { return usage{}, errUnsupported }
func usageOfFamily(int) (usage, error)                 { return usage{}, errUnsupported }
func timesOfMachine() (machineTimes, error)            { return machineTimes{}, errUnsupported }
func diskOf(string) (func() (diskState, error), error) { return nil, errUnsupported }
func load() float64                                    { return 0 }
func datasync(f *os.File) error                        { return f.Sync() }
