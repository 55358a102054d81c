package slowtest

import "time"

const (
	soonest, latest = 5 * time.Millisecond, 250 * time.Millisecond // between two looks
	share           = 4                                            // a look may take a fifth of the time
	precision       = 20                                           // after 20 s, another second does no harm
)

// Until polls a condition until it holds, and reports false if it does not within most. It is for
// conditions without a notification. A poll takes time from others, above all from the awaited
// work; so polls are rarer where one takes long, and after a long wait.
func Until(most time.Duration, is func() bool) bool {
	for began := time.Now(); ; {
		looked := time.Now()
		if is() {
			return true
		}
		now := time.Now()
		if now.Sub(began) > most {
			return false
		}
		<-time.After(min(max(share*now.Sub(looked), now.Sub(began)/precision, soonest), latest))
	}
}
