package identity

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-run/rondo/pkg/history"
)

// TestAnotherPrefixIsRefused: it is refused at once, although nothing makes beats in the database.
func TestAnotherPrefixIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, b := new(database), newNATS()
		p := &process{d: d, b: b}
		if err := p.watch(true).Join(t.Context()); err != nil {
			t.Fatal(err)
		}
		pass(time.Hour)
		began := time.Now()
		other := &process{d: d, b: newNATS(), prefix: "other"}
		const says = `the system of the database has the prefix "rondo", and this process "other"`
		for what, refuse := range map[string]func() error{
			"Join":  func() error { return other.watch(true).Join(t.Context()) },
			"Check": func() error { return Check(t.Context(), other, other) },
		} {
			if err := refuse(); !IsMismatch(err) || !strings.Contains(err.Error(), says) ||
				!strings.Contains(err.Error(), Advice) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if waited := time.Since(began); waited != 0 || other.changed > 0 {
			t.Errorf("refused after %v, and %d changes", waited, other.changed)
		}
		agreed(t, d, b)
		if _, err := Adopt(t.Context(), other, other); err != nil {
			t.Fatal(err)
		}
		if err := other.watch(true).Join(t.Context()); err != nil {
			t.Errorf("after it was adopted: %v", err)
		}
		if err := p.watch(true).Join(t.Context()); !IsMismatch(err) {
			t.Errorf("the former prefix joins: %v", err)
		}
	})
}

// TestOnlySilenceThatIsSeenCounts: a process finds another NATS, which has no entry. Then its looks
// fail, or it stands still, and so do the orchestrators of the database, which make no beat. When
// they go on, it is refused.
func TestOnlySilenceThatIsSeenCounts(t *testing.T) {
	errAway := errors.New("the database is away")
	join := func(t *testing.T, p *process) error { return p.watch(true).Join(t.Context()) }
	adoptIt := func(t *testing.T, p *process) error {
		_, err := Adopt(t.Context(), p, p)
		return err
	}
	for name, x := range map[string]struct {
		fails bool
		joins func(t *testing.T, p *process) error
	}{
		"looks fail":                  {true, join},
		"it stands still":             {false, join},
		"it adopts, and stands still": {false, adoptIt},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &database{now: history.System{ID: "USED", Beats: 5, BeatAt: time.Now()}}
				p := &process{d: d, b: newNATS()}
				from, till := time.Now().Add(5*time.Second), time.Now().Add(35*time.Second)
				p.look = func() error {
					switch now := time.Now(); {
					case now.Before(from) || !now.Before(till):
					case x.fails:
						return errAway
					default:
						<-time.After(time.Until(till))
					}
					return nil
				}
				ended := make(chan error, 1)
				go func() { ended <- x.joins(t, p) }()
				pass(36 * time.Second)
				for range 3 {
					d.mu.Lock()
					d.now.Beats, d.now.BeatAt = d.now.Beats+1, time.Now()
					d.mu.Unlock()
					pass(10 * time.Second)
				}
				select {
				case err := <-ended:
					if inUse := new(InUse); !IsMismatch(err) && !errors.As(err, &inUse) {
						t.Errorf("it ends with %v", err)
					}
				default:
					t.Error("it still waits")
				}
				if p.changed > 0 {
					t.Error("it has changed something")
				}
			})
		})
	}
}
