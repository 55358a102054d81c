package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// This file reads the figures of Linux about processes and the machine, in /proc.

// supported reports whether processes can be measured here.
const supported = true

// tick is the unit of times in /proc, which is the same wherever Go runs on Linux.
const tick = 10 * time.Millisecond

// serviceAttributes give a service a group of its own, so that Ctrl-C ends this process alone,
// which ends the others in order.
func serviceAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// usage is the CPU time and the memory of a process.
type usage struct {
	cpu time.Duration
	rss int64 // bytes; memory that several processes of a family share counts once
}

// usageOf measures a process.
func usageOf(pid int) (usage, error) {
	cpu, _, err := timesOf(pid)
	if err != nil {
		return usage{}, err
	}
	m, err := pagesOf(pid)
	return usage{cpu, m.own + m.files + m.shared}, err
}

// usageOfFamily measures a process and its children, those that have ended included.
func usageOfFamily(pid int) (u usage, err error) {
	cpu, ended, err := timesOf(pid)
	if err != nil {
		return u, err
	}
	u.cpu = cpu + ended
	children, err := childrenOf(pid)
	if err != nil {
		return u, err
	}
	var own, files, shared int64
	for _, child := range append(children, pid) {
		if child != pid {
			cpu, _, err := timesOf(child)
			if err != nil { // it has ended meanwhile
				continue
			}
			u.cpu += cpu
		}
		if m, err := pagesOf(child); err == nil {
			own, files, shared = own+m.own, max(files, m.files), max(shared, m.shared)
		}
	}
	u.rss = own + files + shared
	return u, nil
}

// timesOf gives the processor time of a process, and that of its children that have ended.
func timesOf(pid int) (own, ended time.Duration, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	_, rest, _ := strings.Cut(string(data), ") ") // the name before it may have spaces in it
	f := strings.Fields(rest)
	const user, system, endedUser, endedSystem = 11, 12, 13, 14
	if len(f) <= endedSystem {
		return 0, 0, fmt.Errorf("process %d: the times are missing", pid)
	}
	n := func(i int) time.Duration {
		v, _ := strconv.ParseInt(f[i], 10, 64) // the kernel writes numbers there
		return time.Duration(v) * tick
	}
	return n(user) + n(system), n(endedUser) + n(endedSystem), nil
}

// pages are the memory of a process: its own, and files and shared memory, which it may share with
// others.
type pages struct{ own, files, shared int64 }

// pagesOf reads the memory of a process, from counters. Walking through its pages would show which
// are shared, but takes milliseconds in which the process cannot get new ones.
func pagesOf(pid int) (m pages, err error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return m, err
	}
	found := 0
	for l := range strings.Lines(string(data)) {
		name, rest, _ := strings.Cut(l, ":")
		to := map[string]*int64{"RssAnon": &m.own, "RssFile": &m.files, "RssShmem": &m.shared}[name]
		if to == nil {
			continue
		}
		kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		if err != nil {
			return m, err
		}
		*to, found = kb<<10, found+1
	}
	if found != 3 {
		return m, fmt.Errorf("process %d: its memory is not told", pid)
	}
	return m, nil
}

// childrenOf lists the children of a process.
func childrenOf(pid int) (children []int, err error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err == nil && len(threads) == 0 {
		err = fmt.Errorf("process %d is gone, or its children are not told", pid)
	}
	for _, name := range threads {
		data, readErr := os.ReadFile(name)
		if readErr != nil && !errors.Is(readErr, os.ErrNotExist) {
			err = readErr
		}
		for _, f := range strings.Fields(string(data)) {
			if n, bad := strconv.Atoi(f); bad == nil {
				children = append(children, n)
			}
		}
	}
	return children, err
}

// machineTimes are the processor times of the whole machine.
type machineTimes struct{ all, busy, stolen time.Duration }

func timesOfMachine() (m machineTimes, err error) {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return m, err
	}
	line, _, _ := strings.Cut(string(data), "\n")
	const idle, waiting, stolen, guests = 3, 4, 7, 8
	for i, f := range strings.Fields(line)[1:] {
		v, _ := strconv.ParseInt(f, 10, 64) // the kernel writes numbers there
		if i >= guests {
			break // they are counted as user's, too
		}
		m.all += time.Duration(v) * tick
		switch i {
		case idle, waiting:
		case stolen:
			m.stolen += time.Duration(v) * tick
		default:
			m.busy += time.Duration(v) * tick
		}
	}
	return m, nil
}

// load is how many processes wanted to run in the last minute.
func load() float64 {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(data), " ")
	v, _ := strconv.ParseFloat(first, 64)
	return v
}

// diskOf returns a function that reads the counters of the disk that a directory is on. Directories
// in memory, and those of other machines, have none.
func diskOf(dir string) (look func() (diskState, error), err error) {
	var s syscall.Stat_t
	if err := syscall.Stat(dir, &s); err != nil {
		return nil, &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	name := fmt.Sprintf("/sys/dev/block/%d:%d/stat", unix.Major(s.Dev), unix.Minor(s.Dev))
	look = func() (d diskState, err error) {
		data, err := os.ReadFile(name)
		if err != nil {
			return d, err
		}
		// How many were read, written, dropped and flushed; older systems do not tell of the last
		// two.
		const reads, writes, waiting, dropped, flushed = 0, 4, 8, 11, 15
		for i, f := range strings.Fields(string(data)) {
			v, _ := strconv.ParseInt(f, 10, 64) // the kernel writes numbers there
			switch i {
			case reads, writes, dropped, flushed:
				d.finished += v
			case waiting:
				d.waiting = v
			}
		}
		return d, nil
	}
	_, err = look()
	return look, err
}

// datasync flushes the writes to a file to the disk, as databases do.
func datasync(f *os.File) error { return syscall.Fdatasync(int(f.Fd())) }
