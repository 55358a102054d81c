package brokersim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
	"github.com/rondo-run/rondo/pkg/events"
)

// ---- Dead letters.

// StoreDeadLetter implements broker.DeadLetters.
func (c *Bus) StoreDeadLetter(ctx context.Context, d broker.Delivery, why broker.Cause) error {
	return c.insist(ctx, "store dead letter "+d.Subject, func() error {
		id := ""
		if v := d.Header[events.HeaderMsgID]; len(v) > 0 {
			id = v[0]
		}
		if slices.ContainsFunc(c.b.dead, func(l broker.DeadLetter) bool {
			return l.Subject == d.Subject && l.ID == id && l.StoredAt.Equal(d.StoredAt)
		}) {
			return nil // once more after a crash
		}
		why.Detail = strings.ReplaceAll(why.Detail, "\n", " ")
		c.b.place++
		l := broker.DeadLetter{Sequence: c.b.place, Subject: d.Subject, ID: id,
			Header: maps.Clone(d.Header), Body: d.Body,
			Why: why, StoredAt: d.StoredAt, DeadLetteredAt: c.b.now()}
		delete(l.Header, events.HeaderMsgID)
		if sizeOf(l.Header) > maxHeader {
			l.Header, l.Body, l.Lost = nil, nil, true
		}
		c.b.dead = append(c.b.dead, l)
		return nil
	})
}

// DeadLetters implements broker.DeadLetterStore.
func (c *Bus) DeadLetters(ctx context.Context, after uint64, limit int) (list []broker.DeadLetter, err error) {
	err = c.do(ctx, "dead letters", func() error {
		for _, l := range c.b.dead {
			if l.Sequence > after && len(list) < limit {
				list = append(list, l)
			}
		}
		return nil
	})
	return list, err
}

// DeadLetter implements broker.DeadLetterStore.
func (c *Bus) DeadLetter(ctx context.Context, place uint64) (l broker.DeadLetter, err error) {
	err = c.do(ctx, "dead letter", func() error {
		i := c.b.deadAt(place)
		if i < 0 {
			return broker.ErrNoLetter
		}
		l = c.b.dead[i]
		return nil
	})
	return l, err
}

func (b *Broker) deadAt(place uint64) int {
	return slices.IndexFunc(b.dead, func(l broker.DeadLetter) bool { return l.Sequence == place })
}

// Replay implements broker.DeadLetterStore.
func (c *Bus) Replay(ctx context.Context, place uint64) error {
	l, err := c.DeadLetter(ctx, place)
	if err != nil {
		return err
	}
	if l.Lost {
		return fmt.Errorf("dead letter %d: its headers and body were too large to be kept", place)
	}
	h := maps.Clone(l.Header)
	if h == nil {
		h = make(events.Header)
	}
	if l.ID != "" {
		h[events.HeaderMsgID] = []string{l.ID}
	}
	if err := c.insist(ctx, "replay "+l.Subject, func() error {
		// whatever the broker remembers of its id
		c.b.put(&message{wire: events.Wire{Subject: l.Subject, Header: h, Body: l.Body}}, c.b.now())
		return nil
	}); err != nil {
		return err
	}
	return c.Drop(ctx, place)
}

// Drop implements broker.DeadLetterStore.
func (c *Bus) Drop(ctx context.Context, place uint64) error {
	return c.do(ctx, "drop a dead letter", func() error {
		i := c.b.deadAt(place)
		if i < 0 {
			return broker.ErrNoLetter
		}
		c.b.dead = slices.Delete(c.b.dead, i, i+1)
		return nil
	})
}

// ---- Members.

type membership struct {
	c       *Bus
	self    broker.Member
	heard   time.Time // when it last said that it is there
	changed chan struct{}

	mu   sync.Mutex
	seen []broker.Member
}

// Join implements broker.Members.
func (c *Bus) Join(ctx context.Context, self broker.Member) (broker.Membership, error) {
	if self.ID == "" {
		return nil, errors.New("a member without an id")
	}
	m := &membership{c: c, self: self, changed: make(chan struct{}, 1)}
	err := c.insist(ctx, "join as "+self.ID, func() error {
		m.heard = m.c.b.now()
		c.b.members[self.ID] = m
		c.b.change()
		m.look()
		return nil
	})
	if err != nil {
		return nil, err
	}
	go m.live()
	return m, nil
}

// live says from time to time that the member is there, and looks who else is.
func (m *membership) live() {
	tick := time.NewTicker(m.c.b.lease / 4)
	defer tick.Stop()
	for {
		m.c.b.mu.Lock()
		changed := m.c.b.changed
		m.look()
		m.c.b.mu.Unlock()
		select {
		case <-m.c.ctx.Done():
			return
		case <-changed:
		case <-tick.C:
			m.c.tells("alive "+m.self.ID, func() {
				m.c.b.mu.Lock()
				m.heard = m.c.b.now()
				m.c.b.mu.Unlock()
			})
		}
	}
}

// look sees who is there. The broker's mu is held.
func (m *membership) look() {
	var all []broker.Member
	for _, id := range slices.Sorted(maps.Keys(m.c.b.members)) {
		x := m.c.b.members[id]
		if m.c.b.now().Sub(x.heard) < m.c.b.lease {
			all = append(all, x.self)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.EqualFunc(all, m.seen, func(a, b broker.Member) bool { return fmt.Sprint(a) == fmt.Sprint(b) }) {
		m.seen = all
		select {
		case m.changed <- struct{}{}:
		default:
		}
	}
}

// Members implements broker.Membership.
func (m *membership) Members() []broker.Member {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.seen)
}

// Changed implements broker.Membership.
func (m *membership) Changed() <-chan struct{} { return m.changed }

// Leave implements broker.Membership.
func (m *membership) Leave(ctx context.Context) error {
	return m.c.do(ctx, "leave as "+m.self.ID, func() error {
		if m.c.b.members[m.self.ID] == m {
			delete(m.c.b.members, m.self.ID)
			m.c.b.change()
		}
		return nil
	})
}

// ---- Handovers.

// Handover implements broker.Handovers.
func (c *Bus) Handover(ctx context.Context, to string, d broker.Delivery) error {
	var other *receiverOf
	err := c.do(ctx, "hand over to "+to+" "+d.Subject, func() error {
		if other = c.b.handovers[to]; other == nil {
			return fmt.Errorf("%w: %s", broker.ErrNobody, to)
		}
		return nil
	})
	if other == nil {
		return err
	}
	refused := make(chan error, 1)
	// it has arrived, whatever becomes of the answer
	other.c.path.Hear("handover "+d.Subject, func() { refused <- other.take(d) })
	select {
	case why := <-refused:
		return errors.Join(err, why)
	case <-time.After(answerWait):
		return errors.Join(err, errUnanswered)
	case <-ctx.Done():
		return errors.Join(err, context.Cause(ctx))
	}
}

// receiverOf is who takes what is handed over to a name.
type receiverOf struct {
	c    *Bus
	take func(broker.Delivery) error
}

// ReceiveHandovers implements broker.Handovers.
func (c *Bus) ReceiveHandovers(name string, take func(broker.Delivery) error) (stop func(), err error) {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	own := &receiverOf{c, func(d broker.Delivery) error {
		if c.ctx.Err() != nil {
			return broker.ErrNobody
		}
		h, ok := d.Hold.(hold)
		if !ok {
			return errors.New("this was not handed out here")
		}
		d.Hold = hold{c.b, c, h.place, d.Subject}
		c.b.mu.Lock()
		if m := c.b.find(h.place); m != nil {
			m.holder = nil
		}
		c.b.mu.Unlock()
		c.path.Note("handed over", d.Subject)
		return take(d)
	}}
	c.b.handovers[name] = own
	return func() {
		c.b.mu.Lock()
		defer c.b.mu.Unlock()
		if c.b.handovers[name] == own { // otherwise its successor has begun already
			delete(c.b.handovers, name)
		}
	}, nil
}

// AckSubject implements broker.Hold.
func (h hold) AckSubject() string { return strconv.FormatUint(h.place, 10) }

// ---- Sessions, notes, marks.

type claim struct {
	worker string
	until  time.Time
}

// Claim implements broker.Sessions.
func (c *Bus) Claim(ctx context.Context, session, worker string) (owner string, err error) {
	err = c.do(ctx, "claim "+session, func() error {
		now := c.b.now()
		x := c.b.sessions[session]
		if x.worker == "" || x.worker == worker || !x.until.After(now) {
			x = claim{worker, now.Add(c.b.sessionLease)}
			c.b.sessions[session] = x
		}
		owner = x.worker
		return nil
	})
	return owner, err
}

// Release implements broker.Sessions.
func (c *Bus) Release(ctx context.Context, session, worker string) error {
	return c.do(ctx, "release "+session, func() error {
		if c.b.sessions[session].worker == worker {
			delete(c.b.sessions, session)
		}
		return nil
	})
}

// Owner implements broker.Sessions.
func (c *Bus) Owner(ctx context.Context, session string) (owner string, err error) {
	err = c.do(ctx, "owner of "+session, func() error {
		if x := c.b.sessions[session]; x.until.After(c.b.now()) {
			owner = x.worker
		}
		return nil
	})
	return owner, err
}

// Note implements broker.Notes.
func (c *Bus) Note(ctx context.Context, key string) (value []byte, err error) {
	err = c.do(ctx, "note "+key, func() error { value = slices.Clone(c.b.notes[key]); return nil })
	return value, err
}

// SetNote implements broker.Notes.
func (c *Bus) SetNote(ctx context.Context, key string, value []byte) error {
	return c.do(ctx, "set note "+key, func() error { c.b.notes[key] = slices.Clone(value); return nil })
}

// DropNote implements broker.Notes.
func (c *Bus) DropNote(ctx context.Context, key string) error {
	return c.do(ctx, "drop note "+key, func() error { delete(c.b.notes, key); return nil })
}

// Marked implements broker.Marks.
func (c *Bus) Marked(ctx context.Context, name string) (is bool, err error) {
	err = c.do(ctx, "marked "+name, func() error { is = c.b.marks[name]; return nil })
	return is, err
}

// SetMark implements broker.Marks.
func (c *Bus) SetMark(ctx context.Context, name string) error {
	return c.do(ctx, "mark "+name, func() error { c.b.marks[name] = true; return nil })
}

// ClearMark implements broker.Marks.
func (c *Bus) ClearMark(ctx context.Context, name string) error {
	return c.do(ctx, "clear mark "+name, func() error { delete(c.b.marks, name); return nil })
}

// Repair implements broker.Marks. Nothing is ever missing: what was lost is empty.
func (c *Bus) Repair(ctx context.Context) error {
	return c.do(ctx, "repair", func() error { return nil })
}

// ---- Schedules are kept, and never due.

// PutSchedule implements broker.Schedules.
func (c *Bus) PutSchedule(ctx context.Context, s broker.Schedule) error {
	return c.do(ctx, "put schedule", func() error { c.b.schedules[s.ID] = s; return nil })
}

// Schedules implements broker.Schedules.
func (c *Bus) Schedules(ctx context.Context) (list []broker.Schedule, err error) {
	err = c.do(ctx, "schedules", func() error {
		for _, id := range slices.Sorted(maps.Keys(c.b.schedules)) {
			list = append(list, c.b.schedules[id])
		}
		return nil
	})
	return list, err
}

// DropSchedule implements broker.Schedules.
func (c *Bus) DropSchedule(ctx context.Context, id string) (found bool, err error) {
	err = c.do(ctx, "drop schedule", func() error {
		_, found = c.b.schedules[id]
		delete(c.b.schedules, id)
		return nil
	})
	return found, err
}

// HealSchedules implements broker.Schedules.
func (c *Bus) HealSchedules(context.Context) (int, error) { return 0, nil }

// ---- Notices and questions.

type listener struct {
	c     *Bus
	wants func(words []string) bool
	heard func(words []string, h events.Header, body []byte)
}

func (c *Bus) listen(wants func([]string) bool, heard func([]string, events.Header, []byte)) (stop func()) {
	l := &listener{c, wants, heard}
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	c.b.listeners[l] = true
	return func() {
		c.b.mu.Lock()
		defer c.b.mu.Unlock()
		delete(c.b.listeners, l)
	}
}

// announce tells all who listen. mu is held.
func (b *Broker) announce(words []string, h events.Header, body []byte) {
	for l := range b.listeners {
		if l.c.ctx.Err() == nil && l.wants(words) {
			l.c.path.Hear("hear "+strings.Join(words, " "), func() {
				go l.heard(slices.Clone(words), maps.Clone(h), body)
			})
		}
	}
}

// Announce implements broker.Notices.
func (c *Bus) Announce(words []string, h events.Header, body []byte) error {
	if len(words) < 3 || slices.Contains(words, "") {
		return fmt.Errorf("a notice of the words %q", words)
	}
	c.tells("announce "+words[0], func() {
		c.b.mu.Lock()
		defer c.b.mu.Unlock()
		c.b.announce(words, h, body)
	})
	return nil
}

// Listen implements broker.Notices.
func (c *Bus) Listen(_ context.Context, words []string,
	heard func([]string, events.Header, []byte)) (stop func(), err error) {
	if len(words) < 3 || slices.Contains(words, "") {
		return nil, fmt.Errorf("a notice of the words %q", words)
	}
	return c.listen(func(said []string) bool {
		return slices.EqualFunc(words, said, func(w, s string) bool { return w == broker.Any || w == s })
	}, heard), nil
}

type answerer struct {
	c      *Bus
	answer func(ctx context.Context, question []byte) ([]byte, error)
	too    bool
}

// Answer implements broker.Questions.
func (c *Bus) Answer(method string, answer func(context.Context, []byte) ([]byte, error)) (stop func(), err error) {
	return c.answers(method, &answerer{c, answer, false}), nil
}

// AnswerToo implements broker.RollCalls.
func (c *Bus) AnswerToo(method string, answer func(context.Context, []byte) ([]byte, error)) (stop func(), err error) {
	return c.answers(method, &answerer{c, answer, true}), nil
}

func (c *Bus) answers(method string, a *answerer) (stop func()) {
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	c.b.answerers[method] = append(c.b.answerers[method], a)
	return func() {
		c.b.mu.Lock()
		defer c.b.mu.Unlock()
		c.b.answerers[method] = slices.DeleteFunc(c.b.answerers[method], func(x *answerer) bool { return x == a })
	}
}

// those lists who answers. mu is held.
func (b *Broker) those(method string, too bool) (list []*answerer) {
	for _, a := range b.answerers[method] {
		if a.too == too && a.c.ctx.Err() == nil {
			list = append(list, a)
		}
	}
	return list
}

// Ask implements broker.Questions.
func (c *Bus) Ask(ctx context.Context, method string, question []byte) ([]byte, error) {
	var who []*answerer
	if err := c.do(ctx, "ask "+method, func() error { who = c.b.those(method, false); return nil }); err != nil {
		return nil, err
	}
	if len(who) == 0 {
		return nil, fmt.Errorf("ask for %s: %w", method, broker.ErrNobody)
	}
	if len(question) > maxPayload {
		return nil, errors.New("the question is too large")
	}
	return who[c.b.turn.Add(1)%uint64(len(who))].answered(ctx, question)
}

func (a *answerer) answered(ctx context.Context, question []byte) ([]byte, error) {
	answer, err := a.answer(ctx, question)
	var known *broker.AnswerError
	switch {
	case err == nil && len(answer) > maxPayload:
		return nil, &broker.AnswerError{Code: "too_large", Message: "the answer is too large"}
	case err != nil:
		code := "failed"
		if errors.As(err, &known) && known.Code != "" {
			code = known.Code
		}
		return nil, &broker.AnswerError{Code: code, Message: strings.ReplaceAll(err.Error(), "\n", " ")}
	}
	return answer, nil
}

// AskAll implements broker.RollCalls.
func (c *Bus) AskAll(ctx context.Context, method string, question []byte,
	_ time.Duration) (answers [][]byte, err error) {
	var who []*answerer
	if err := c.do(ctx, "ask all "+method, func() error { who = c.b.those(method, true); return nil }); err != nil {
		return nil, err
	}
	for _, a := range who {
		if answer, err := a.answered(ctx, question); err == nil {
			answers = append(answers, answer)
		}
	}
	if len(answers) == 0 {
		return nil, fmt.Errorf("ask all for %s: %w", method, broker.ErrNobody)
	}
	return answers, nil
}

// Dead lists the dead letters as they are stored.
func (b *Broker) Dead() (list []events.Wire) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.dead {
		h := maps.Clone(l.Header)
		if h == nil {
			h = make(events.Header)
		}
		for name, value := range map[string]string{
			"Reason": l.Why.Reason, "Detail": l.Why.Detail, "By": l.Why.By, "Attempts": strconv.Itoa(l.Why.Attempts),
			"Subject": l.Subject, "Id": l.ID,
			"Stored": l.StoredAt.UTC().Format(time.RFC3339Nano),
		} {
			h["Rondo-Dead-"+name] = []string{value}
		}
		list = append(list, events.Wire{Subject: b.prefix + ".dead." + strings.TrimPrefix(l.Subject, b.prefix+"."),
			Header: h, Body: l.Body})
	}
	return list
}
