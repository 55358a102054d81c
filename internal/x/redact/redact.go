// Package redact hides the secrets in addresses, for logs and for operators.
package redact

import (
	"regexp"
	"slices"
	"strings"
)

// Hidden stands for a secret.
const Hidden = "(hidden)"

// The passwords in what pgx reads: in settings separated by spaces, and in the query of a URL.
var (
	passwordSetting = regexp.MustCompile(`(?i)(\b(?:ssl)?password\s*=\s*)(?:'(?:[^'\\]|\\.|'')*(?:'|$)|\S+)`)
	bareAddress     = regexp.MustCompile(`^([^:/@=\s]*:)\S*@`)
	passwordInQuery = regexp.MustCompile(`(?i)([?&](?:ssl)?password=)[^&\s]*`)
)

// Addresses hides the passwords in addresses that commas separate: the part between the user and
// the host, the value of "password=", and tokens of NATS. Where an address is ambiguous, it hides
// too much rather than too little.
func Addresses(addresses string) string {
	if !strings.Contains(addresses, "://") {
		addresses = passwordSetting.ReplaceAllString(addresses, "${1}"+Hidden)
		return bareAddress.ReplaceAllString(addresses, "${1}"+Hidden+"@")
	}
	parts := strings.Split(addresses, ",")
	for n := 0; n < len(parts); n++ {
		for n+1 < len(parts) && !strings.Contains(parts[n+1], "://") { // the comma belongs to it
			parts[n] += "," + parts[n+1]
			parts = slices.Delete(parts, n+1, n+2)
		}
		parts[n] = url(parts[n])
	}
	return strings.Join(parts, ",")
}

func url(address string) string {
	scheme, rest, ok := strings.Cut(address, "://")
	at := strings.LastIndexByte(rest, '@')
	if ok && at >= 0 {
		user, _, with := strings.Cut(rest[:at], ":")
		switch {
		case with:
			rest = user + ":" + Hidden + rest[at:]
		case !strings.HasPrefix(strings.TrimSpace(scheme), "postgres"): // that is a token
			rest = Hidden + rest[at:]
		}
	}
	if ok {
		address = scheme + "://" + rest
	}
	return passwordInQuery.ReplaceAllString(address, "${1}"+Hidden)
}
