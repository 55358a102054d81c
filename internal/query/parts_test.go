package query

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rondo-run/rondo/internal/broker"
)

// slowLine is a broker over a slow connection.
type slowLine struct {
	Requester
	parts  *parts
	answer []byte
	takes  time.Duration // each message
}

func (l *slowLine) Request(ctx context.Context, method string, question []byte) ([]byte, error) {
	select {
	case <-time.After(l.takes):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if method == l.parts.method {
		return l.parts.answer(ctx, question)
	}
	return l.parts.wrap("client", l.answer, time.Now())
}

func (l *slowLine) Discover(context.Context, string, []byte, time.Duration) ([][]byte, error) {
	return nil, broker.ErrNoResponders
}

// noise is a payload that does not become smaller.
func noise(size int) []byte {
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{}).Read(data) // it never fails
	return data
}

// TestALargeAnswerOverASlowLineArrives: the time limit of a request is that of each part, and an
// orchestrator keeps the parts while a client fetches them.
func TestALargeAnswerOverASlowLineArrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := noise(20 * minMaxAnswer)
		l := &slowLine{parts: newParts(minMaxAnswer), answer: data, takes: patience / 2}
		others := make(chan struct{})
		go func() { // answers to others come and go meanwhile
			defer close(others)
			for range 20 {
				<-time.After(patience / 2)
				if _, err := l.parts.wrap("other", data, time.Now()); err != nil {
					t.Error(err)
				}
			}
		}()
		got, ok, err := NewReader(l).askOnce(t.Context(), MethodInstance, nil)
		if err != nil || !ok || !bytes.Equal(got, data) {
			t.Errorf("got %d bytes of %d, %v, %v", len(got), len(data), ok, err)
		}
		<-others
	})
}

// TestALargeAnswerEndsInTheEnd: many parts that each arrive in time do not keep a client for ever.
func TestALargeAnswerEndsInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &slowLine{parts: newParts(minMaxAnswer), answer: noise(200 * minMaxAnswer), takes: patience / 2}
		began := time.Now()
		if _, _, err := NewReader(l).askOnce(t.Context(), MethodInstance, nil); err == nil {
			t.Error("it was answered")
		}
		if latest := began.Add(fetchWithin + patience); time.Now().After(latest) {
			t.Errorf("it ends at %v, want %v", time.Now(), latest)
		}
	})
}

// TestOneClientDoesNotDropTheAnswersOfOthers: a client that asks for many large answers and does
// not fetch them drops its own ones.
func TestOneClientDoesNotDropTheAnswersOfOthers(t *testing.T) {
	p := newParts(defaultMaxAnswer)
	now := time.Now()
	keep := func(requester, token string, size int) {
		t.Helper()
		if err := p.keep(requester, token, make([]byte, size), now); err != nil {
			t.Fatal(err)
		}
	}
	has := func(want ...string) {
		t.Helper()
		size := 0
		for _, token := range want {
			if p.kept[token] == nil {
				t.Fatalf("%q is not kept", token)
			}
			size += len(p.kept[token].data)
		}
		if len(p.kept) != len(want) || len(p.order) != len(want) || p.bytes != size || size > maxKept {
			t.Fatalf("%d answers of %d bytes are kept, want %q of %d", len(p.kept), p.bytes, want, size)
		}
	}
	const large = maxKept / 4
	keep("modest", "m", large/2)
	for _, token := range []string{"g1", "g2", "g3", "g4", "g5"} {
		keep("greedy", token, large)
	}
	has("m", "g3", "g4", "g5")
	keep("another", "a", large)
	has("m", "g4", "g5", "a")
	keep("huge", "h", maxKept-large/2) // there is room for one other
	has("m", "h")
	now = now.Add(keepParts)
	keep("later", "l", large)
	has("l")
	if len(p.of) != 1 {
		t.Errorf("bytes are counted for %v", p.of)
	}
}

// A client that names itself anew in each request does not drop the larger answer of another one
// before those that are older.
func TestManyNamesDoNotDropALargerAnswer(t *testing.T) {
	p := newParts(defaultMaxAnswer)
	now := time.Now()
	const size = maxKept / 256
	keep := func(n int) {
		t.Helper()
		if err := p.keep(fmt.Sprint("name", n), fmt.Sprint(n), make([]byte, size), now); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 256 {
		keep(n)
	}
	if err := p.keep("modest", "m", make([]byte, 4*size), now); err != nil {
		t.Fatal(err)
	}
	for n := range 252 {
		keep(1000 + n)
		if p.kept["m"] == nil {
			t.Fatalf("it is dropped after %d answers of others", n+1)
		}
	}
	if keep(2000); p.kept["m"] != nil || p.bytes > maxKept {
		t.Errorf("the oldest one is not dropped, and %d bytes are kept", p.bytes)
	}
}
