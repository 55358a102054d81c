package main

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// watcher measures the CPU time of the test binaries below a process, by their directory. It looks
// at /proc four times a second: go test -exec would measure exactly, but turns its cache off. On a
// system without /proc it measures nothing.
type watcher struct {
	root   int
	stop   chan struct{}
	ended  chan struct{}
	seen   map[int]*seen // by process
	others map[int]bool  // processes of this machine that are not below root: they are not read again
}

// seen is a test binary with its child processes.
type seen struct {
	dir string
	cpu time.Duration
}

const (
	lookEvery = 250 * time.Millisecond
	tick      = 10 * time.Millisecond // of the kernel's times: USER_HZ is 100 on all Linux systems
)

func watch(root int) *watcher {
	w := &watcher{root: root, stop: make(chan struct{}), ended: make(chan struct{}), seen: make(map[int]*seen),
		others: make(map[int]bool)}
	go func() {
		defer close(w.ended)
		ticker := time.NewTicker(lookEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				w.look()
			case <-w.stop:
				return
			}
		}
	}()
	return w
}

// end returns the CPU time by directory.
func (w *watcher) end() map[string]time.Duration {
	close(w.stop)
	<-w.ended
	all := make(map[string]time.Duration)
	for _, s := range w.seen {
		all[s.dir] += s.cpu
	}
	return all
}

// process is a line of /proc/PID/stat.
type process struct {
	parent int
	name   string
	cpu    time.Duration // its own, and that of the children that it has waited for
}

func (w *watcher) look() {
	all := w.read()
	now := make(map[int]time.Duration)
	for pid, p := range all {
		if of, ok := w.binary(pid, all); ok {
			now[of] += p.cpu
		}
	}
	for pid, cpu := range now {
		s := w.seen[pid]
		if s == nil {
			dir, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/cwd")
			if err != nil {
				continue
			}
			s = &seen{dir: dir}
			w.seen[pid] = s
		}
		s.cpu = max(s.cpu, cpu)
	}
}

// read returns the processes below the root, and the root.
func (w *watcher) read() map[int]process {
	all := make(map[int]process)
	proc, err := os.Open("/proc")
	if err != nil {
		return all
	}
	names, _ := proc.Readdirnames(-1)
	_ = proc.Close() // it was only read
	others := make(map[int]bool, len(w.others))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		switch {
		case err != nil:
		case w.others[pid]:
			others[pid] = true
		default:
			data, err := os.ReadFile("/proc/" + name + "/stat")
			if err != nil {
				continue // it has ended
			}
			if p, ok := parseStat(string(data)); ok {
				all[pid] = p
			}
		}
	}
	ours := make(map[int]process)
	for pid, p := range all {
		switch below, known := w.below(pid, all); {
		case below:
			ours[pid] = p
		case known: // otherwise its parent has begun meanwhile
			others[pid] = true
		}
	}
	w.others = others
	return ours
}

// below reports whether a process is the root or below it, and whether that is known.
func (w *watcher) below(pid int, all map[int]process) (below, known bool) {
	for range 100 {
		switch p, there := all[pid]; {
		case pid == w.root:
			return true, true
		case pid <= 1, w.others[pid]:
			return false, true
		case !there:
			return false, false
		default:
			pid = p.parent
		}
	}
	return false, false
}

// binary returns the test binary that a process is or belongs to: the outermost one below the root.
func (w *watcher) binary(pid int, all map[int]process) (of int, ok bool) {
	for range 100 {
		p, there := all[pid]
		if !there || pid == w.root {
			return of, ok && pid == w.root
		}
		if strings.HasSuffix(p.name, ".test") || len(p.name) == 15 && strings.Contains(p.name, ".te") {
			of, ok = pid, true
		}
		pid = p.parent
	}
	return 0, false
}

// parseStat reads a line of /proc/PID/stat. The name is in parentheses, and may have some itself.
func parseStat(line string) (p process, ok bool) {
	from, to := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
	if from < 0 || to < from {
		return p, false
	}
	p.name = line[from+1 : to]
	fields := strings.Fields(line[to+1:])
	if len(fields) < 15 {
		return p, false
	}
	parent, err := strconv.Atoi(fields[1])
	if err != nil {
		return p, false
	}
	p.parent = parent
	for _, f := range fields[11:15] { // utime, stime, cutime, cstime
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return p, false
		}
		p.cpu += time.Duration(n) * tick
	}
	return p, true
}
