package cockroach

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/rondo-run/rondo/pkg/history"
)

// unreadable is the error of an address that cannot be read. The error of pgx has the whole
// address, and in its text there may be parts of a malformed password. So this finds the problem
// once more, without any part that may belong to a password.
func unreadable(address string) error {
	reason := "what is wrong is in the password or behind it; in a URL, write : as %3A, / as %2F, ? as %3F, # as " +
		"%23, @ as %40 and % as %25 there"
	if _, err := pgxpool.ParseConfig(withoutPassword(address)); err != nil {
		reason = err.Error()
	}
	return &history.Error{Class: history.Permanent, Op: "read the database's address",
		Err: fmt.Errorf("%s; it should look like postgres://user:password@host:26257/database?sslmode=verify-full",
			reason)}
}

var passwordSetting = regexp.MustCompile(`(?is)(ssl)?password\s*=.*`)

// withoutPassword takes out of an address all that may be part of a password, and rather too much
// than too little: from where a password is set to the end, and from the first colon to the last @.
// Where there is none, whatever is behind the colon may be one, unless it is behind a keyword.
func withoutPassword(address string) string {
	address = passwordSetting.ReplaceAllLiteralString(address, "")
	scheme, rest, ok := strings.Cut(address, "://")
	if !ok {
		scheme, rest = "", address
	}
	colon, at := strings.IndexByte(rest, ':'), strings.LastIndexByte(rest, '@')
	switch {
	case colon < 0:
	case colon < at:
		rest = rest[:colon] + rest[at:]
	case at < 0 && !strings.Contains(rest[:colon], "="):
		rest = rest[:colon]
	}
	if ok {
		return scheme + "://" + rest
	}
	return rest
}
