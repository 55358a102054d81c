package slowtest

import "time"

const (
	soonest, latest = 5 * time.Millisecond, 250 * time.Millisecond // between two looks
	share           = 4                                            // a look may take a fifth of the time
	precision       = 20                                           // who has waited for 20 s is not hurt by another one
)

// Until looks again and again until something is so, and reports false if it is not after a while.
// It is for what can only be looked at. A look takes time that others need, above all those whose
// work is waited for; so it looks less often where a look takes long, and after a long wait.
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
