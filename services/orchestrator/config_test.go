package orchestrator

import (
	"strings"
	"testing"
	"time"
)

func TestConfigTellsEverythingThatIsWrong(t *testing.T) {
	c := Config{Memory: Memory{MaxInstances: -1, MaxMessages: 10}, Commit: Commit{MaxTurns: -1},
		ShutdownTimeout: -time.Second, Retention: -1}.withDefaults()
	err := c.check()
	if err == nil {
		t.Fatal("nothing is wrong")
	}
	for _, says := range []string{"instances in memory: -1", "turns in a commit: -1", "the grace of a shutdown",
		"what is kept", "are less than the 500 of one round"} {
		if !strings.Contains(err.Error(), says) {
			t.Errorf("it does not say %q:\n%v", says, err)
		}
	}
	if err := (Config{}).withDefaults().check(); err != nil {
		t.Errorf("the defaults are wrong: %v", err)
	}
}

func TestMadeUpIDsAreDifferentAndFitForSubjects(t *testing.T) {
	a, b := newID(), newID()
	if a == b || cleanID(a) != a {
		t.Errorf("%q and %q", a, b)
	}
	if got := cleanID("my host.example/ä*"); got != "my-host-example----" {
		t.Errorf("%q", got)
	}
}
