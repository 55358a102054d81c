package jobserver

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/rondo-run/rondo/internal/jobs"
	"github.com/rondo-run/rondo/pkg/events"
)

//go:embed openapi.json
var openAPI []byte

func (s *Server) openapi(*call) (answer, error) { return answer{body: openAPI}, nil }

// ---- How a queue stands.

// standing is how a queue stands, for people and programs.
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

// withOldest is a standing with what only the store of one queue knows.
type withOldest struct {
	standing
	Oldest *float64 `json:"oldest_age_seconds"`
}

func (s *Server) look(c *call) (answer, error) {
	i, err := s.info(c)
	if err != nil {
		return answer{}, err
	}
	return answer{body: withOldest{standingOf(i), age(i)}}, nil
}

func (s *Server) info(c *call) (jobs.Info, error) {
	if err := known(c); err != nil {
		return jobs.Info{}, err
	}
	return s.store.Look(c.Context(), c.queue)
}

// age is how old the oldest item is that can be popped, nil if there is none.
func age(i jobs.Info) *float64 {
	if i.Oldest.IsZero() {
		return nil
	}
	seconds := max(0, i.At.Sub(i.Oldest)).Round(time.Millisecond).Seconds()
	return &seconds
}

func (s *Server) depth(c *call) (answer, error) {
	i, err := s.info(c)
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

func (s *Server) oldest(c *call) (answer, error) {
	i, err := s.info(c)
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

func (s *Server) list(c *call) (answer, error) {
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
	// Queues that the caller may not look at are left out, and so are their names.
	ask := limit + 1
	if c.caller != nil {
		ask = maxPage + 1 // or who may look at few could have them read one by one
	}
	for after := c.URL.Query().Get("after"); ; {
		all, err := s.store.List(c.Context(), after, ask)
		if err != nil {
			return answer{}, err
		}
		for _, i := range all {
			if !c.may(Look, i.Queue) {
				continue
			}
			if len(out.Queues) == limit {
				out.After = out.Queues[limit-1].Queue
				return answer{body: out}, nil
			}
			out.Queues = append(out.Queues, standingOf(i))
		}
		if len(all) < ask {
			return answer{body: out}, nil
		}
		after = all[len(all)-1].Queue
	}
}

// ---- Changing a queue.

func (s *Server) configure(c *call) (answer, error) {
	if err := known(c); err != nil {
		return answer{}, err
	}
	var settings jobs.Settings
	if err := s.read(c, &settings); err != nil {
		return answer{}, err
	}
	if start := settings.Start; start != nil && start.Orchestration != "" {
		if err := events.CheckName("orchestration", start.Orchestration); err != nil {
			return answer{}, invalid("start: %v", err)
		}
	}
	if _, err := s.do(c, jobs.Configure{Settings: settings}); err != nil {
		return answer{}, err
	}
	return answer{body: struct {
		Success  bool          `json:"success"`
		Message  string        `json:"message"`
		Settings jobs.Settings `json:"settings"`
	}{true, "the settings of the queue are these now", settings.WithDefaults()}}, nil
}

// removeAtOnce bounds the items that go in one transaction.
const removeAtOnce = 1000

type removed struct {
	Success bool   `json:"success"`
	Message string `json:"message"`
	Items   int    `json:"items_removed"`
}

func (s *Server) remove(c *call) (answer, error) {
	if err := known(c); err != nil {
		return answer{}, err
	}
	n, err := s.removeItems(c, false)
	if err != nil {
		return answer{}, err
	}
	if _, err := s.do(c, jobs.Forget{}); err != nil {
		return answer{}, err
	}
	return answer{body: removed{true, "the queue is removed", n}}, nil
}

func (s *Server) removeDead(c *call) (answer, error) {
	if err := known(c); err != nil {
		return answer{}, err
	}
	n, err := s.removeItems(c, true)
	if err != nil {
		return answer{}, err
	}
	return answer{body: removed{true, "the dead items are removed", n}}, nil
}

// removeItems removes what there is. Of a very large queue it removes a part, and whoever wants the
// rest removed asks again.
func (s *Server) removeItems(c *call, dead bool) (n int, err error) {
	until := s.config.Now().Add(s.config.Timeout)
	for {
		r, err := s.do(c, jobs.Remove{Dead: dead, Limit: removeAtOnce})
		if err != nil {
			return n, err
		}
		if n += r.Count; r.Count < removeAtOnce {
			return n, nil
		}
		if s.config.Now().After(until) {
			return n, newProblem(http.StatusServiceUnavailable, codeUnavailable,
				fmt.Sprintf("%d items are removed, and there are more: send the request again to go on",
					n)).retry(time.Second)
		}
	}
}

// ---- Dead items.

type deadItem struct {
	ID     string          `json:"dead_id"`
	Item   json.RawMessage `json:"item"`
	DiedAt float64         `json:"died_at"`
	Reason string          `json:"reason"`
	detail
}

func (s *Server) dead(c *call) (answer, error) {
	if err := known(c, "limit", "after"); err != nil {
		return answer{}, err
	}
	limit, err := page(c)
	if err != nil {
		return answer{}, err
	}
	var after jobs.DeadID
	if text := c.URL.Query().Get("after"); text != "" {
		if after, err = jobs.ParseDeadID(text); err != nil {
			return answer{}, err
		}
	}
	all, err := s.deadOf(c, after, limit+1)
	if err != nil {
		return answer{}, err
	}
	out := struct {
		Items []deadItem `json:"items"`
		Count int        `json:"count"`
		After string     `json:"after,omitempty"`
	}{Items: []deadItem{}}
	bytes := 0
	for n, d := range all {
		if bytes += len(d.Data); n == limit || bytes > maxAnswer && n > 0 {
			out.After = out.Items[n-1].ID
			break
		}
		out.Items = append(out.Items,
			deadItem{d.DeadID().String(), d.Data, unixSeconds(d.DiedAt), d.Reason, detailOf(d.Item)})
	}
	out.Count = len(out.Items)
	return answer{body: out}, nil
}

// deadAtOnce bounds the dead items that are read at once: nothing is known of their sizes.
const deadAtOnce = 32

// deadOf reads dead items behind one, so many or as many as an answer may have.
func (s *Server) deadOf(c *call, after jobs.DeadID, limit int) (all []jobs.Dead, err error) {
	for bytes := 0; len(all) < limit && bytes <= maxAnswer; {
		ask := min(deadAtOnce, limit-len(all))
		some, err := s.store.Dead(c.Context(), c.queue, after, ask)
		if err != nil {
			return nil, err
		}
		for _, d := range some {
			bytes += len(d.Data)
		}
		if all = append(all, some...); len(some) < ask {
			break
		}
		after = some[ask-1].DeadID()
	}
	return all, nil
}

func (s *Server) requeue(c *call) (answer, error) {
	if err := known(c); err != nil {
		return answer{}, err
	}
	var body struct {
		IDs   []string `json:"dead_ids"`
		Limit *int     `json:"limit"`
	}
	if err := s.read(c, &body); err != nil {
		return answer{}, err
	}
	op := jobs.Requeue{Limit: jobs.MaxCount}
	if body.Limit != nil {
		op.Limit = *body.Limit
	}
	switch {
	case op.Limit < 1 || op.Limit > jobs.MaxCount:
		return answer{}, invalid("limit: %d; want 1 to %d", op.Limit, jobs.MaxCount)
	case body.IDs != nil && (len(body.IDs) == 0 || len(body.IDs) > jobs.MaxCount):
		return answer{}, invalid(
			"dead_ids: a list of %d; give 1 to %d, or leave it out to requeue those that died first", len(body.IDs),
			jobs.MaxCount)
	}
	for _, text := range body.IDs {
		id, err := jobs.ParseDeadID(text)
		if err != nil {
			return answer{}, err
		}
		op.IDs = append(op.IDs, id)
	}
	r, err := s.do(c, op)
	if err != nil {
		return answer{}, err
	}
	return answer{body: struct {
		Success bool   `json:"success"`
		Message string `json:"message"`
		Items   int    `json:"items_requeued"`
	}{true, "the items are at the end of the queue", r.Count}}, nil
}
