package datatype

import (
	"strings"
	"testing"
	"time"
)

type own func()

func (own) MarshalText() ([]byte, error) { return nil, nil }

type list []list

func TestTypesThatCannotBeStoredAreNamed(t *testing.T) {
	for want, err := range map[string]error{
		"the input has type chan int, and a chan cannot be stored":            Check[chan int]("input"),
		"the result has type func(), and a func cannot be stored":             Check[func()]("result"),
		"the input has type map[string][]*func(), and a func cannot":          Check[map[string][]*func()]("input"),
		"the input has type [2]<-chan time.Time, and a chan cannot be stored": Check[[2]<-chan time.Time]("input"),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	for _, err := range []error{Check[struct{ F func() }]("x"), Check[any]("x"), Check[own]("x"), Check[[]own]("x"),
		Check[list]("x"), Check[*time.Time]("x"), Check[struct{}]("x")} {
		if err != nil {
			t.Error(err)
		}
	}
}
