package jobserver

import (
	_ "embed"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/pkg/events"
)

//go:embed openapi.json
var openAPI []byte

func openapi(*handlers, *call) (answer, error) { return answer{body: openAPI}, nil }

// ---- The state of a queue.

// standing is the state of a queue in answers.
type standing struct {
	Queue      string         `json:"queue_id"`
	Depth      int            `json:"depth"`
	Priorities map[string]int `json:"priorities"`
	Locked     int            `json:"locked_items"`
	Locks      int            `json:"locks"`
	ExpiresAt  *float64       `json:"lock_expires_at,omitempty"`
	Delayed    int            `json:"delayed_items"`
	Dead       int            `json:"dead_items"`
	Settings   jobs.Settings  `json:"settings"`
	Totals     totals         `json:"totals"`
}

type totals struct {
	Pushed       int64 `json:"pushed"`
	Popped       int64 `json:"popped"`
	Acknowledged int64 `json:"acknowledged"`
	Returned     int64 `json:"returned"`
	Expired      int64 `json:"expired"`
	Died         int64 `json:"dead"`
}

func standingOf(i jobs.Info) standing {
	st := standing{
		Queue: i.Queue, Depth: i.Depth(), Priorities: priorities(i), Locked: i.Locked, Locks: i.Locks,
		Delayed: i.Delayed, Dead: i.Dead, Settings: i.Settings, Totals: totals(i.Totals),
	}
	if i.Exclusive != nil {
		at := unixSeconds(i.Exclusive.ExpiresAt)
		st.ExpiresAt = &at
	}
	return st
}

func priorities(i jobs.Info) map[string]int {
	m := make(map[string]int, len(i.Ready))
	for p, n := range i.Ready {
		m[strconv.Itoa(p)] = n
	}
	return m
}

// withOldest is a standing with the age, which only the store of one queue knows.
type withOldest struct {
	standing
	Oldest *float64 `json:"oldest_age_seconds"`
}

// queueHandlers serve the routes for whole queues: their state, their settings, and their removal.
type queueHandlers struct {
	store      jobs.Store
	operations *operations
	bodies     *bodies
}

func (h *queueHandlers) look(c *call) (answer, error) {
	i, err := h.info(c)
	if err != nil {
		return answer{}, err
	}
	return answer{body: withOldest{standingOf(i), age(i)}}, nil
}

func (h *queueHandlers) info(c *call) (jobs.Info, error) {
	if err := known(c); err != nil {
		return jobs.Info{}, err
	}
	return h.store.Look(c.Context(), c.queue)
}

// age is the age of the oldest job that can be popped, nil if there is none.
func age(i jobs.Info) *float64 {
	if i.Oldest.IsZero() {
		return nil
	}
	seconds := max(0, i.At.Sub(i.Oldest)).Round(time.Millisecond).Seconds()
	return &seconds
}

func (h *queueHandlers) depth(c *call) (answer, error) {
	i, err := h.info(c)
	if err != nil {
		return answer{}, err
	}
	return answer{body: struct {
		Queue      string         `json:"queue_id"`
		Depth      int            `json:"depth"`
		Priorities map[string]int `json:"priorities"`
		Locked     int            `json:"locked_items"`
		Delayed    int            `json:"delayed_items"`
		Dead       int            `json:"dead_items"`
	}{i.Queue, i.Depth(), priorities(i), i.Locked, i.Delayed, i.Dead}}, nil
}

func (h *queueHandlers) oldest(c *call) (answer, error) {
	i, err := h.info(c)
	if err != nil {
		return answer{}, err
	}
	var at *float64
	if !i.Oldest.IsZero() {
		ready := unixSeconds(i.Oldest)
		at = &ready
	}
	return answer{body: struct {
		Queue   string   `json:"queue_id"`
		Age     *float64 `json:"oldest_age_seconds"`
		ReadyAt *float64 `json:"oldest_ready_at"`
	}{i.Queue, age(i), at}}, nil
}

// The sizes of pages.
const (
	defaultPage = 100
	maxPage     = 1000
)

func page(c *call) (int, error) {
	limit, err := whole(c, "limit", defaultPage)
	if err == nil && (limit < 1 || limit > maxPage) {
		err = invalid("limit: %d; want 1 to %d", limit, maxPage)
	}
	return limit, err
}

func (h *queueHandlers) list(c *call) (answer, error) {
	if err := known(c, "limit", "after"); err != nil {
		return answer{}, err
	}
	limit, err := page(c)
	if err != nil {
		return answer{}, err
	}
	out := struct {
		Queues []standing `json:"queues"`
		After  string     `json:"after,omitempty"`
	}{Queues: []standing{}}
	err = h.operations.list(c, func(most int) (n int, err error) {
		out.Queues, out.After, n, err = h.visible(c, limit, most)
		return n, err
	})
	return answer{body: out}, err
}

// visible reads the queues that the caller may look at, up to the limit or up to a size. Of others
// it returns nothing, not even names.
func (h *queueHandlers) visible(c *call, limit, most int) (all []standing, next string, bytes int, err error) {
	all = []standing{}
	ask := limit + 1
	if c.caller != nil {
		ask = maxPage + 1 // or a caller with few queues could have them read one by one
	}
	for after := c.URL.Query().Get("after"); ; {
		some, err := h.store.List(c.Context(), after, ask)
		if err != nil {
			return nil, "", 0, err
		}
		for _, i := range some {
			if !c.may(Look, i.Queue) {
				continue
			}
			if len(all) == limit || bytes > most {
				return all, all[len(all)-1].Queue, bytes, nil
			}
			all, bytes = append(all, standingOf(i)), bytes+standingBytes+len(i.Ready)*priorityBytes
		}
		if len(some) < ask {
			return all, "", bytes, nil
		}
		after = some[len(some)-1].Queue
	}
}

// standingBytes estimates a queue in a list, priorityBytes each of its priorities with ready jobs.
const (
	standingBytes = 2 << 10
	priorityBytes = 24
)

// ---- Changing a queue.

func (h *queueHandlers) configure(c *call) (answer, error) {
	if err := known(c); err != nil {
		return answer{}, err
	}
	var settings jobs.Settings
	if err := h.bodies.read(c, &settings); err != nil {
		return answer{}, err
	}
	if start := settings.Start; start != nil && start.Orchestration != "" {
		if err := events.CheckName("orchestration", start.Orchestration); err != nil {
			return answer{}, invalid("start: %v", err)
		}
		// This includes the start that the queue has already: the request sets it again.
		if c.caller != nil && !c.caller.MayStart(start.Orchestration, c.queue) {
			return answer{}, newProblem(http.StatusForbidden, codeMayNot, fmt.Sprintf(
				"%s may not have queue %s start %s: the access file does not list the orchestration under start",
				c.caller.Name, c.queue, start.Orchestration))
		}
	}
	if _, err := h.operations.do(c, jobs.Configure{Settings: settings}); err != nil {
		return answer{}, err
	}
	return answer{body: struct {
		Success  bool          `json:"success"`
		Message  string        `json:"message"`
		Settings jobs.Settings `json:"settings"`
	}{true, "the settings of the queue are these now", settings.WithDefaults()}}, nil
}

type removed struct {
	Success bool   `json:"success"`
	Message string `json:"message"`
	Items   int    `json:"items_removed"`
}

func (h *queueHandlers) remove(c *call) (answer, error) {
	if err := known(c); err != nil {
		return answer{}, err
	}
	until := h.operations.now().Add(h.operations.timeout)
	n, err := h.operations.removeJobs(c, false, until)
	if err != nil {
		return answer{}, err
	}
	if err := h.operations.removeQueue(c, n, until); err != nil {
		return answer{}, err
	}
	return answer{body: removed{true, "the queue is removed", n}}, nil
}
