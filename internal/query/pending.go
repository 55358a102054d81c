package query

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/history"
)

// Pending is a start that waits in the broker: the database does not have its instance yet, or has
// an earlier one.
type Pending struct {
	Instance string `json:"instance"`
	Name     string `json:"name"`
	Version  string `json:"version,omitempty"`
	// Parent is the instance that has started it as its child.
	Parent string `json:"parent,omitempty"`
	// StoredAt is when the broker stored it first.
	StoredAt time.Time `json:"stored_at"`
	Why      Why       `json:"why"`
	// Due is the time of a delayed start.
	Due time.Time `json:"due,omitzero"`
}

// Why says why a start is pending.
type Why string

// The reasons.
const (
	Scheduled Why = "scheduled" // its time has not come
	Queued    Why = "waiting"   // no orchestrator has committed it
)

// PendingList is a page of pending starts as JSON.
type PendingList struct {
	Starts []Pending `json:"starts"`
	Next   string    `json:"next,omitempty"`
}

// PendingFilter selects pending starts. A start must match all fields that are set.
type PendingFilter struct{ Instance, IDPrefix, Name string }

const (
	// pendingAtOnce is the maximum number of starts that are read at once, and pendingReads the
	// maximum number of such reads for a page. The filter may leave few of them.
	pendingAtOnce = 100
	pendingReads  = 10
)

// pending lists starts that wait in the broker. A page may be shorter than its limit, even empty,
// and still have a Next, so that its cost has a bound. It has each start once, also if the broker
// stores it twice, because its sender has published it again.
func (a *answerer) pending(ctx context.Context, q Question) (any, error) {
	f, err := q.pendingFilter()
	if err != nil {
		return nil, err
	}
	from, err := readStartCursor(q.Cursor)
	if err != nil {
		return nil, err
	}
	out := PendingList{Starts: []Pending{}}
	want, bytes, seen := q.page().Size(), 0, make(listed)
	for range pendingReads {
		page, err := a.pendingPage(ctx, f, from, min(want-len(out.Starts), pendingAtOnce))
		if err != nil {
			return nil, err
		}
		for _, s := range page.Starts {
			p, id, ok := a.pendingOf(s)
			if !ok || !strings.HasPrefix(p.Instance, f.IDPrefix) || seen.stored(s) || seen.message(p, id) {
				continue
			}
			n, err := size(p)
			if err != nil {
				return nil, err
			}
			out.Starts, bytes = append(out.Starts, p), bytes+n
		}
		if !page.More {
			return out, nil
		}
		if from = page.Next; len(out.Starts) >= want || bytes >= maxPage {
			break
		}
	}
	out.Next = startCursor(from)
	return out, nil
}

// listed has the starts that were listed.
type listed map[[3]string]bool

// stored notes a stored start, and reports whether it was noted before: one that moves meanwhile is
// found twice.
func (l listed) stored(s broker.PendingStart) bool { return l.again("stored", s.Subject, s.Key) }

// message notes the message of a start, and reports whether it was noted before.
func (l listed) message(p Pending, id string) bool { return l.again("message", p.Instance, id) }

func (l listed) again(kind, of, id string) bool {
	key := [3]string{kind, of, id}
	is := l[key]
	l[key] = true
	return is
}

func (a *answerer) pendingPage(ctx context.Context, f PendingFilter, from broker.StartCursor,
	limit int) (broker.StartPage, error) {
	page, err := a.o.Pending.PendingStarts(ctx, broker.StartFilter{Name: f.Name, Instance: f.Instance}, from, limit)
	if err != nil {
		err = &history.Error{Class: history.Retry, Op: "list pending starts", Err: err}
	}
	return page, err
}

// pendingOf decodes a start, with the id of its message. ok is false for a message that the
// orchestrators dead-letter.
func (a *answerer) pendingOf(s broker.PendingStart) (p Pending, id string, ok bool) {
	body := s.Body
	if len(s.Header) > 0 { // otherwise only the body tells a start from a response of NATS
		body = nil
	}
	m, err := events.Decode(a.o.Prefix, s.Subject, s.Header, body, s.ID())
	if err != nil {
		return p, "", false
	}
	start, ok := m.Content.(*events.Start)
	if !ok {
		return p, "", false
	}
	p = Pending{Instance: m.Instance, Name: start.Orchestration, Version: start.Version, StoredAt: s.StoredAt,
		Why: Queued}
	if start.Parent != nil {
		p.Parent = start.Parent.Instance
	}
	if !s.AcceptedAt.IsZero() {
		p.StoredAt = s.AcceptedAt
	}
	if s.NotBefore.After(a.o.Now()) {
		p.Why, p.Due = Scheduled, s.NotBefore
	}
	p.StoredAt, p.Due = p.StoredAt.UTC(), p.Due.UTC()
	return p, m.ID, true
}

// The errors of a withdrawal.
var (
	// ErrStarted means that the database has the instance: before the withdrawal, or since then,
	// because an orchestrator had the start already.
	ErrStarted = errors.New("an orchestrator has taken its start; cancel, terminate or delete the instance")
	// ErrPendingChild means that the start is that of a child, for which its parent would wait for
	// ever.
	ErrPendingChild = errors.New("its start is that of a child; cancel its parent")
)

// WithdrawnStarts counts the starts of an instance that a withdrawal has removed.
type WithdrawnStarts struct {
	Instance string `json:"instance"`
	Starts   int    `json:"withdrawn"`
}

// withdraw removes the starts of an instance that the database does not have. It looks at the
// database again afterwards, since an orchestrator may have had a start already.
func (a *answerer) withdraw(ctx context.Context, q Question) (any, error) {
	if err := a.notStarted(ctx, q.Instance); err != nil {
		return nil, err
	}
	var starts []broker.PendingStart
	n, seen := 0, make(listed)
	for from, more := (broker.StartCursor{}), true; more; {
		page, err := a.pendingPage(ctx, PendingFilter{Instance: q.Instance}, from, pendingAtOnce)
		if err != nil {
			return nil, err
		}
		for _, s := range page.Starts {
			p, id, ok := a.pendingOf(s)
			if !ok || p.Instance != q.Instance || seen.stored(s) {
				continue
			}
			if p.Parent != "" {
				return nil, fmt.Errorf("instance %q, child of %q: %w", p.Instance, p.Parent, ErrPendingChild)
			}
			if !seen.message(p, id) {
				n++
			}
			s.Header, s.Body = nil, nil
			starts = append(starts, s)
		}
		from, more = page.Next, page.More
	}
	if len(starts) == 0 {
		return nil, fmt.Errorf("instance %q: %w", q.Instance, history.ErrNoInstance)
	}
	for _, s := range starts {
		if err := a.o.Pending.WithdrawStart(ctx, s); err != nil {
			return nil, &history.Error{Class: history.Retry, Op: "withdraw a start", Err: err}
		}
	}
	if err := a.notStarted(ctx, q.Instance); err != nil {
		return nil, err
	}
	return WithdrawnStarts{Instance: q.Instance, Starts: n}, nil
}

// notStarted returns [ErrStarted] if the database has an instance.
func (a *answerer) notStarted(ctx context.Context, instance string) error {
	_, err := a.store.Instance(ctx, instance)
	switch {
	case err == nil:
		return fmt.Errorf("instance %q: %w", instance, ErrStarted)
	case errors.Is(err, history.ErrNoInstance):
		return nil
	}
	return err
}

// Withdraw removes the starts of an instance that the database does not have from the broker.
func (r *Reader) Withdraw(ctx context.Context, instance string) (w WithdrawnStarts, err error) {
	err = r.ask(ctx, MethodWithdraw, Question{Instance: instance}, &w)
	return w, err
}

// pendingFilter reads the filter of a request. A start has few of the fields of an instance.
func (q Question) pendingFilter() (f PendingFilter, err error) {
	f.Instance = q.Instance
	if q.Filter == nil {
		return f, nil
	}
	h := q.filter()
	f.IDPrefix, f.Name = h.IDPrefix, h.Name
	h.IDPrefix, h.Name = "", ""
	if !reflect.ValueOf(h).IsZero() {
		return f, badQuestion("question for %s: its filter has name and id_prefix only, like %s", MethodPending,
			exampleOf(MethodPending))
	}
	return f, nil
}

// startCursor writes where a page begins.
func startCursor(c broker.StartCursor) string {
	return strconv.Itoa(c.Place) + "." + strconv.FormatUint(c.Sequence, 10)
}

// readStartCursor reads it; "" is the beginning.
func readStartCursor(s string) (c broker.StartCursor, err error) {
	if s == "" {
		return c, nil
	}
	place, sequence, _ := strings.Cut(s, ".")
	n, err1 := strconv.ParseUint(place, 10, 8)
	c.Place = int(n)
	c.Sequence, err = strconv.ParseUint(sequence, 10, 64)
	if err1 != nil || err != nil {
		return c, fmt.Errorf("cursor %q: %w", s, history.ErrBadCursor)
	}
	return c, nil
}

// Pending lists starts that wait in the broker. A page may be shorter than asked for, even empty;
// it then has a Next all the same.
func (r *Reader) Pending(ctx context.Context, f PendingFilter, page history.Page) (list PendingList, err error) {
	for _, text := range []string{f.Instance, f.IDPrefix, f.Name} {
		if !utf8.ValidString(text) { // JSON cannot say it, and there is none
			return list, nil
		}
	}
	err = r.ask(ctx, MethodPending, Question{Instance: f.Instance, Limit: int64(page.Size()), Cursor: page.Cursor,
		Filter: &Filter{IDPrefix: f.IDPrefix, Name: f.Name}}, &list)
	return list, err
}
