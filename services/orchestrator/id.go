package orchestrator

import (
	"crypto/rand"
	"encoding/hex"
	"os"
)

// newID returns an id that no other orchestrator has.
func newID() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "orchestrator"
	}
	return cleanID(host) + "-" + randomWord()
}

// cleanID leaves of a name what an id may have.
func cleanID(s string) string {
	b := []byte(s)
	for i, c := range b {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_') {
			b[i] = '-'
		}
	}
	return string(b)
}

func randomWord() string {
	var b [5]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
