package orchestrator

import "testing"

// After a commit has failed, no other begins beside the one that is tried again, however many turns wait.
func TestCommitsAreTriedOneAtATime(t *testing.T) {
	for name, slow := range map[string]slowness{"before the next try": {delay: maxCommitDelay}, "with fewer turns": {fewer: 10}} {
		t.Run(name, func(t *testing.T) {
			l := &loop{commits: 1, toCommit: make([]*decision, 10*secondFrom), slow: slow}
			l.startCommit(t.Context())
			if l.commits != 1 || len(l.toCommit) != 10*secondFrom {
				t.Errorf("%d commits are under way and %d turns wait", l.commits, len(l.toCommit))
			}
		})
	}
}
