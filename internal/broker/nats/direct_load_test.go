package natsbroker

import (
	"testing"
	"time"
)

// TestLoadIsAMean: tasks of 20 ms, one after the other with pauses, show in each look, and for a
// minute after the last.
func TestLoadIsAMean(t *testing.T) {
	t.Parallel()
	var l loads
	now := time.Unix(1_000_000, 0)
	for range 900 { // 90 s
		now = now.Add(100 * time.Millisecond)
		l.note("_.a", now.Add(-20*time.Millisecond), now)
		if one, _ := l.queues.Load("_.a"); one.(*load).mean(now.Add(50*time.Millisecond)) == 0 {
			t.Fatal("a queue that is busy shows no load")
		}
	}
	one, _ := l.queues.Load("_.a")
	q := one.(*load)
	if m := q.mean(now); m < 0.2 || m > 0.24 {
		t.Errorf("a fifth of the time a task was executed, and the mean is %v", m)
	}
	if m := q.mean(now.Add(50 * time.Second)); m <= 0 {
		t.Errorf("50 s later it is %v", m)
	}
	if m := q.mean(now.Add(80 * time.Second)); m != 0 {
		t.Errorf("80 s later it is %v", m)
	}
}
