package orchestration_test

import (
	"errors"
	"testing"
	"time"

	"github.com/rondo-run/rondo/pkg/events"
	"github.com/rondo-run/rondo/pkg/orchestration"
)

func TestDelayedStartHasItsTime(t *testing.T) {
	w := &wire{}
	later := w.Now().Add(48 * time.Hour)
	for name, c := range map[string]struct {
		opts []orchestration.StartOption
		want time.Time
	}{
		"none":     {nil, time.Time{}},
		"delay":    {[]orchestration.StartOption{orchestration.Delay(time.Hour)}, w.Now().Add(time.Hour)},
		"no delay": {[]orchestration.StartOption{orchestration.Delay(-time.Hour)}, time.Time{}},
		"moment":   {[]orchestration.StartOption{orchestration.At(later)}, later},
		"the last one counts": {[]orchestration.StartOption{orchestration.At(later), orchestration.Delay(time.Hour)},
			w.Now().Add(time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			w := &wire{}
			_, err := subject.Start(t.Context(), w, "in", append(c.opts, orchestration.WithMessage(letters, "dear"),
				orchestration.WithMessage(letters, "reader"))...)
			must(t, err)
			if len(w.published) != 1 {
				t.Fatalf("published %+v", w.published)
			}
			if m := w.published[0]; !m.NotBefore.Equal(c.want) || len(m.Content.(*events.Start).Messages) != 2 {
				t.Errorf("%+v is due at %v, want %v with two messages", m.Content, m.NotBefore, c.want)
			}
		})
	}
}

func TestMessagesGoWithAStart(t *testing.T) {
	w := &wire{}
	for range 2 {
		_, err := subject.Start(t.Context(), w, "in", orchestration.ID("i"), orchestration.RequestID("r"),
			orchestration.WithMessage(letters, "dear"), orchestration.WithMessage(letters, "john"))
		must(t, err)
	}
	if len(w.published) != 2 {
		t.Fatalf("published %+v", w.published)
	}
	for _, m := range w.published {
		with := m.Content.(*events.Start).Messages
		if m.ID != "r" || m.Instance != "i" || len(with) != 2 || with[1].Mailbox != "letters" ||
			string(with[1].Data) != `"john"` {
			t.Errorf("published %+v with %+v", m, with)
		}
	}
}

func TestRejectedStart(t *testing.T) {
	w := &wire{receipt: orchestration.Receipt{Reason: "exists", Status: "running"}}
	h, err := subject.Start(t.Context(), w, "in", orchestration.ID("i"), orchestration.RejectExisting(),
		orchestration.WithMessage(letters, "dear"))
	mustSay(t, err, `instance "i" is already there (running)`)
	var exists *orchestration.ExistsError
	if !errors.Is(err, orchestration.ErrExists) || !errors.As(err, &exists) || exists.Instance != "i" || h.ID != "i" {
		t.Errorf("got %v for %q", err, h.ID)
	}
	w.receipt = orchestration.Receipt{Reason: "poison", Detail: "tried too often"}
	_, err = subject.Start(t.Context(), w, "in", orchestration.RejectExisting())
	mustSay(t, err, "was not started: tried too often (poison)")
	if len(w.published) != 0 {
		t.Errorf("published %v", w.published)
	}
	w.receipt = orchestration.Receipt{Taken: true}
	_, err = subject.Start(t.Context(), w, "in", orchestration.RejectExisting(),
		orchestration.WithMessage(letters, "dear"))
	must(t, err)
	if len(w.published) != 0 || len(w.delivered) != 3 {
		t.Errorf("published %v, delivered %v", w.published, w.delivered)
	}
	if last := w.delivered[2].Content.(*events.Start); last.Conflict != events.RejectExisting ||
		len(last.Messages) != 1 {
		t.Errorf("delivered %+v, want its message to be for what it starts only", last)
	}
	w.refuse = errors.New("no connection")
	if _, err = subject.Start(t.Context(), w, "in", orchestration.RejectExisting()); !errors.Is(err, w.refuse) {
		t.Errorf("got %v", err)
	}
	if (&orchestration.ExistsError{Instance: "x"}).Error() != `instance "x" is already there; choose another id, or RestartFinished or ReplaceRunning` {
		t.Error("without a status it reads badly")
	}
}

func TestStartOptionsAreChecked(t *testing.T) {
	w := &wire{}
	_, err := subject.Start(t.Context(), w, "in", orchestration.RejectExisting(),
		orchestration.Delay(events.MaxDelay+1))
	mustSay(t, err, "RejectExisting cannot wait", "delay of a start (seconds)")
	_, err = subject.Start(t.Context(), w, "in", orchestration.At(time.Date(20_000, 1, 1, 0, 0, 0, 0, time.UTC)))
	mustSay(t, err, "delay of a start (seconds)")
	_, err = subject.Start(t.Context(), w, "in",
		orchestration.WithMessage(orchestration.DefineMailbox[string](""), large))
	mustSay(t, err, "mailbox name: it is empty", `mailbox "" (bytes)`)
	_, err = subject.Start(t.Context(), w, "in", orchestration.WithMessage(orchestration.DefineMailbox[func()]("q"),
		nil))
	mustSay(t, err, "encode func()")
	if len(w.published)+len(w.delivered) != 0 {
		t.Errorf("published %v", w.published)
	}
}
