package jobserver

import (
	"encoding/json"

	"github.com/rondo-run/rondo/internal/jobs"
)

// deadHandlers serve the routes for the dead jobs of a queue.
type deadHandlers struct {
	store      jobs.Store
	operations *operations
	bodies     *bodies
}

type deadJob struct {
	ID     string          `json:"dead_id"`
	Item   json.RawMessage `json:"item"`
	DiedAt float64         `json:"died_at"`
	Reason string          `json:"reason"`
	detail
}

func (h *deadHandlers) list(c *call) (answer, error) {
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
	var all []jobs.Dead
	var most int
	err = h.operations.list(c, func(room int) (n int, err error) {
		most = room
		all, n, err = h.deadOf(c, after, limit+1, most)
		return n, err
	})
	if err != nil {
		return answer{}, err
	}
	out := struct {
		Items []deadJob `json:"items"`
		Count int       `json:"count"`
		After string    `json:"after,omitempty"`
	}{Items: []deadJob{}}
	bytes := 0
	for n, d := range all {
		if bytes += len(d.Data); n == limit || bytes > most && n > 0 {
			out.After = out.Items[n-1].ID
			break
		}
		out.Items = append(out.Items,
			deadJob{d.DeadID().String(), d.Data, unixSeconds(d.DiedAt), d.Reason, detailOf(d.Job)})
	}
	out.Count = len(out.Items)
	return answer{body: out}, nil
}

// deadAtOnce bounds the dead jobs that are read at once: their sizes are not known.
const deadAtOnce = 32

// deadOf reads dead jobs after one, up to the limit or up to a size, which it returns.
func (h *deadHandlers) deadOf(c *call, after jobs.DeadID, limit, most int) (all []jobs.Dead, bytes int, err error) {
	for len(all) < limit && bytes <= most {
		ask := min(deadAtOnce, limit-len(all), max(1, (most-bytes)/DefaultMaxJob))
		some, err := h.store.Dead(c.Context(), c.queue, after, ask)
		if err != nil {
			return nil, 0, err
		}
		for _, d := range some {
			bytes += len(d.Data)
		}
		if all = append(all, some...); len(some) < ask {
			break
		}
		after = some[ask-1].DeadID()
	}
	return all, bytes, nil
}

func (h *deadHandlers) requeue(c *call) (answer, error) {
	if err := known(c); err != nil {
		return answer{}, err
	}
	var body struct {
		IDs   []string `json:"dead_ids"`
		Limit *int     `json:"limit"`
	}
	if err := h.bodies.read(c, &body); err != nil {
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
	r, err := h.operations.do(c, op)
	if err != nil {
		return answer{}, err
	}
	return answer{body: struct {
		Success bool   `json:"success"`
		Message string `json:"message"`
		Items   int    `json:"items_requeued"`
	}{true, "the items are at the end of the queue", r.Count}}, nil
}

func (h *deadHandlers) remove(c *call) (answer, error) {
	if err := known(c); err != nil {
		return answer{}, err
	}
	n, err := h.operations.removeJobs(c, true, h.operations.now().Add(h.operations.timeout))
	if err != nil {
		return answer{}, err
	}
	return answer{body: removed{true, "the dead items are removed", n}}, nil
}
