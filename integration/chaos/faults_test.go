//go:build unix

package chaos_test

import (
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rondo-run/rondo/internal/pgfault"
)

// This file is the faults.

// fault is something that can be done to the fleet.
type fault struct {
	name string
	// part is the part of the system that it hits. Two faults at once hit different parts; a fault
	// that is alone is never one of two.
	part  part
	alone bool
	// outlasts says that it is held for longer than every lease, holds for how long at least.
	outlasts bool
	holds    time.Duration
	// survived says that other processes take over at once: recovery begins with the fault, and not
	// with its end.
	survived bool
	// inject injects the fault, and returns its cure and the name of the process or part that it
	// hit.
	inject func(c *chaos) (heal func(), what string)
}

type part string

const (
	ofServices part = "services"
	ofNATS     part = "NATS"
	ofLinks    part = "links"
	ofDatabase part = "PostgreSQL"
	ofClients  part = "clients"
)

// faults is the table of all of them.
var faults = []fault{
	{name: "orchestrator killed", part: ofServices, survived: true, inject: func(c *chaos) (func(), string) {
		return c.kill(one(c, c.fleet.orchestrators))
	}},
	{name: "both orchestrators killed", part: ofServices, inject: func(c *chaos) (func(), string) {
		return c.kill(c.fleet.orchestrators...)
	}},
	{name: "orchestrator frozen", part: ofServices, outlasts: true, inject: func(c *chaos) (func(), string) {
		return c.freeze(one(c, c.fleet.orchestrators))
	}},
	{name: "worker killed", part: ofServices, survived: true, inject: func(c *chaos) (func(), string) {
		return c.kill(one(c, c.fleet.workers))
	}},
	{name: "both workers killed", part: ofServices, inject: func(c *chaos) (func(), string) {
		return c.kill(c.fleet.workers...)
	}},
	{name: "worker frozen", part: ofServices, outlasts: true, inject: func(c *chaos) (func(), string) {
		return c.freeze(one(c, c.fleet.workers))
	}},
	{name: "orchestrator frozen for 15 s", part: ofServices, holds: 15 * time.Second,
		inject: func(c *chaos) (func(), string) {
			return c.freeze(one(c, c.fleet.orchestrators))
		}},
	{name: "orchestrator frozen for 60 s", part: ofServices, holds: time.Minute,
		inject: func(c *chaos) (func(), string) {
			return c.freeze(one(c, c.fleet.orchestrators))
		}},
	{name: "worker frozen for 15 s", part: ofServices, holds: 15 * time.Second,
		inject: func(c *chaos) (func(), string) {
			return c.freeze(one(c, c.fleet.workers))
		}},
	{name: "worker frozen for 60 s", part: ofServices, holds: time.Minute, inject: func(c *chaos) (func(), string) {
		return c.freeze(one(c, c.fleet.workers))
	}},
	{name: "all services frozen for 15 s", part: ofServices, holds: 15 * time.Second,
		inject: func(c *chaos) (func(), string) {
			return c.freeze(c.fleet.services()...)
		}},
	{name: "all services frozen for 60 s", part: ofServices, holds: time.Minute,
		inject: func(c *chaos) (func(), string) {
			return c.freeze(c.fleet.services()...)
		}},
	{name: "all services killed", part: ofServices, alone: true, inject: func(c *chaos) (func(), string) {
		return c.kill(c.fleet.services()...)
	}},

	{name: "NATS leader killed", part: ofNATS, survived: true, inject: func(c *chaos) (func(), string) {
		return c.kill(c.leader())
	}},
	{name: "NATS follower killed", part: ofNATS, survived: true, inject: func(c *chaos) (func(), string) {
		return c.kill(c.follower())
	}},
	{name: "NATS leader frozen", part: ofNATS, outlasts: true, inject: func(c *chaos) (func(), string) {
		return c.freeze(c.leader())
	}},
	{name: "NATS majority killed", part: ofNATS, inject: func(c *chaos) (func(), string) {
		return c.kill(c.leader(), c.follower())
	}},
	{name: "NATS restarted", part: ofNATS, inject: func(c *chaos) (func(), string) { return c.kill(c.fleet.nodes...) }},
	{name: "NATS server lost its files", part: ofNATS, survived: true, inject: func(c *chaos) (func(), string) {
		return c.wipe(one(c, c.fleet.nodes))
	}},
	{name: "NATS lost all files", part: ofNATS, alone: true, inject: (*chaos).wipeAll},
	{name: "NATS lost all files, with much in them", part: ofNATS, alone: true, inject: (*chaos).wipeMuch},

	{name: "orchestrator cut off NATS", part: ofLinks, inject: func(c *chaos) (func(), string) {
		return c.between(c.fleet.orchestrators, weather{Cut: true})
	}},
	{name: "orchestrator-NATS half open", part: ofLinks, outlasts: true, inject: func(c *chaos) (func(), string) {
		return c.between(c.fleet.orchestrators, c.lossy())
	}},
	{name: "worker cut off NATS", part: ofLinks, inject: func(c *chaos) (func(), string) {
		return c.between(c.fleet.workers, weather{Cut: true})
	}},
	{name: "worker-NATS half open", part: ofLinks, outlasts: true, inject: func(c *chaos) (func(), string) {
		return c.between(c.fleet.workers, c.lossy())
	}},
	{name: "all links to NATS slow", part: ofLinks, inject: (*chaos).slowNATS},
	{name: "orchestrator cut off database", part: ofLinks, inject: func(c *chaos) (func(), string) {
		return c.toDatabase(weather{Cut: true})
	}},
	{name: "database half open", part: ofLinks, outlasts: true, inject: func(c *chaos) (func(), string) {
		return c.toDatabase(c.lossy())
	}},
	{name: "database slow", part: ofLinks, inject: func(c *chaos) (func(), string) {
		return c.toDatabase(weather{Delay: c.milliseconds(50, 300)})
	}},

	{name: "flood of what no instance takes", part: ofClients, survived: true, inject: (*chaos).flood},

	{name: "PostgreSQL shut down at once", part: ofDatabase, alone: true, inject: func(c *chaos) (func(), string) {
		c.fleet.postgres.Stop(c.t)
		return func() { c.fleet.postgres.Restart(c.t) }, ""
	}},
	{name: "PostgreSQL killed", part: ofDatabase, alone: true, inject: func(c *chaos) (func(), string) {
		c.fleet.postgres.Kill(c.t)
		return func() { c.fleet.postgres.Restart(c.t) }, ""
	}},
	{name: "40001 storm", part: ofDatabase, inject: func(c *chaos) (func(), string) {
		return c.statements(0.5, pgfault.FailBefore("40001", "restart transaction: injected"), anyStatement)
	}},
	{name: "ambiguous commits", part: ofDatabase, inject: func(c *chaos) (func(), string) {
		return c.statements(0.3, pgfault.CutAfter, anyStatement)
	}},
	{name: "disk full (53100 injected)", part: ofDatabase, inject: func(c *chaos) (func(), string) {
		return c.statements(1,
			pgfault.FailBefore("53100", "could not extend file: No space left on device: injected"), writes)
	}},
}

// one chooses one of some.
func one(c *chaos, of []*process) *process { return of[c.chance.IntN(len(of))] }

// leader is the server that leads the stream of all messages to instances, or any if there is none.
func (c *chaos) leader() *process {
	if i := c.fleet.leader("RONDO"); i >= 0 {
		return c.fleet.nodes[i]
	}
	return c.fleet.nodes[0]
}

func (c *chaos) follower() *process {
	leader := c.leader()
	for {
		if p := one(c, c.fleet.nodes); p != leader {
			return p
		}
	}
}

func names(of []*process) string {
	var names []string
	for _, p := range of {
		names = append(names, p.role.ID)
	}
	return strings.Join(names, ", ")
}

// kill kills processes with SIGKILL, all at the same time.
func (c *chaos) kill(which ...*process) (heal func(), what string) {
	together(which, (*process).kill)
	return func() { together(which, (*process).start) }, names(which)
}

func together(which []*process, do func(*process)) {
	var all sync.WaitGroup
	for _, p := range which {
		all.Go(func() { do(p) })
	}
	all.Wait()
}

// freeze stops processes with SIGSTOP.
func (c *chaos) freeze(which ...*process) (heal func(), what string) {
	signal := func(s syscall.Signal) { together(which, func(p *process) { p.signal(s) }) }
	signal(syscall.SIGSTOP)
	return func() { signal(syscall.SIGCONT) }, names(which)
}

// wipe kills NATS servers and deletes everything that they had.
func (c *chaos) wipe(which ...*process) (heal func(), what string) {
	heal, what = c.kill(which...)
	for _, p := range which {
		if err := os.RemoveAll(p.role.Dir); err != nil {
			c.t.Error(err)
		}
	}
	return heal, what
}

// wipeAll deletes the data of all NATS servers. Messages that they had acknowledged, and that no
// orchestrator had taken, may be lost.
func (c *chaos) wipeAll() (heal func(), what string) {
	c.clients.losing(func() { heal, what = c.wipe(c.fleet.nodes...) })
	return heal, what
}

// wipeMuch does that after the orchestrators have been frozen for a while, so that there are
// messages to lose.
func (c *chaos) wipeMuch() (heal func(), what string) {
	for _, p := range c.fleet.orchestrators {
		goOn, _ := c.freeze(p)
		defer goOn()
	}
	c.pause(c.milliseconds(500, 2000))
	return c.wipeAll()
}

// between changes the weather between a service and all NATS servers.
func (c *chaos) between(services []*process, w weather) (heal func(), what string) {
	id := one(c, services).role.ID
	set := func(w weather) {
		for _, l := range c.fleet.toNATS[id] {
			l.set(w)
		}
	}
	set(w)
	return func() { set(weather{}) }, id + w.loss()
}

func (w weather) loss() string {
	switch {
	case w.LoseUp && w.LoseDown:
		return ", both ways"
	case w.LoseUp:
		return ", what it says is lost"
	case w.LoseDown:
		return ", what it is told is lost"
	}
	return ""
}

// lossy is a weather that loses the bytes of one side, or of both.
func (c *chaos) lossy() weather {
	return []weather{{LoseUp: true, LoseDown: true}, {LoseUp: true}, {LoseDown: true}}[c.chance.IntN(3)]
}

func (c *chaos) slowNATS() (heal func(), what string) {
	w := weather{Delay: c.milliseconds(20, 200)}
	set := func(w weather) {
		for _, links := range c.fleet.toNATS {
			for _, l := range links {
				l.set(w)
			}
		}
	}
	set(w)
	return func() { set(weather{}) }, w.Delay.String() + " each way"
}

// toDatabase changes the weather between an orchestrator and the database.
func (c *chaos) toDatabase(w weather) (heal func(), what string) {
	id := one(c, c.fleet.orchestrators).role.ID
	l := c.fleet.toDatabase[id]
	l.set(w)
	what = id + w.loss()
	if w.Delay > 0 {
		what += ", " + w.Delay.String() + " each way"
	}
	return func() { l.set(weather{}) }, what
}

// statements lets some share of the statements of all orchestrators fail.
func (c *chaos) statements(share float64, how pgfault.Fault, which func(pgfault.Statement) bool) (heal func(),
	what string) {
	var hit atomic.Int64
	for i, p := range c.fleet.proxies {
		chance := rand.New(rand.NewPCG(c.chance.Uint64(), uint64(i)))
		var mu sync.Mutex
		p.Inject(func(s pgfault.Statement) pgfault.Fault {
			mu.Lock()
			defer mu.Unlock()
			if which(s) && chance.Float64() < share {
				hit.Add(1)
				return how
			}
			return pgfault.Pass
		})
	}
	return func() {
		for _, p := range c.fleet.proxies {
			p.Inject(nil)
		}
		c.say("  %d statements were hit", hit.Load())
	}, ""
}

func anyStatement(pgfault.Statement) bool { return true }

// writes reports whether the database may need space for a statement.
func writes(s pgfault.Statement) bool {
	return strings.Contains(s.SQL, "INSERT") || strings.Contains(s.SQL, "UPDATE")
}

func (c *chaos) milliseconds(from, to int) time.Duration {
	return time.Duration(from+c.chance.IntN(to-from)) * time.Millisecond
}
