package signal

import "testing"

func TestASignalIsSetOnce(t *testing.T) {
	s := New()
	select {
	case <-s:
		t.Fatal("a new signal is set")
	default:
	}
	s.Set()
	s.Set()
	<-s
	select {
	case <-s:
		t.Error("the signal is set twice")
	default:
	}
}
