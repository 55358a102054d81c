package events

import (
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/rondo-run/rondo/pkg/failure"
)

// Bounded cuts the texts of an error of any length, so that an error always fits into a message.
// The result is the same error after JSON, so code sees the same text before and after a replay.
func Bounded(e *failure.Error) *failure.Error { return bounded(e, 0) }

func bounded(e *failure.Error, depth int) *failure.Error {
	if e == nil {
		return nil
	}
	if fits(e) && (e.Cause == nil || depth < MaxErrorCauses) {
		if c := bounded(e.Cause, depth+1); c != e.Cause {
			b := *e
			b.Cause = c
			return &b
		}
		return e
	}
	b := *e
	b.Message, b.Stack, b.Source = cutJSON(b.Message, MaxErrorText), cutJSON(b.Stack, MaxErrorText),
		cutJSON(b.Source, MaxReason)
	b.Kind, b.Type = failure.Kind(cutJSON(string(b.Kind), MaxName)), cutJSON(b.Type, MaxName)
	b.Expected, b.Got = cutJSON(b.Expected, MaxReason), cutJSON(b.Got, MaxReason)
	if len(b.Details) > MaxErrorText {
		b.Details = nil
	}
	if depth >= MaxErrorCauses {
		b.Cause = nil
	}
	b.Cause = bounded(b.Cause, depth+1)
	return &b
}

func fits(e *failure.Error) bool {
	return fitsJSON(e.Message, MaxErrorText) && fitsJSON(e.Stack, MaxErrorText) && len(e.Details) <= MaxErrorText &&
		fitsJSON(string(e.Kind), MaxName) && fitsJSON(e.Type, MaxName) && fitsJSON(e.Source, MaxReason) &&
		fitsJSON(e.Expected, MaxReason) && fitsJSON(e.Got, MaxReason)
}

// fitsJSON reports whether text takes at most n bytes in JSON and comes back as the same text.
func fitsJSON(s string, n int) bool {
	if len(s) > n || !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		n -= sizeJSON(r)
	}
	return n >= 0
}

// cutJSON makes text fit.
func cutJSON(s string, n int) string {
	if fitsJSON(s, n) {
		return s
	}
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	size, end := 0, 0
	for i, r := range s {
		if size <= n-len("…") {
			end = i
		}
		if size += sizeJSON(r); size > n {
			return s[:end] + "…"
		}
	}
	return s
}

// sizeJSON is the number of bytes that encoding/json writes for a character, at most.
func sizeJSON(r rune) int {
	switch {
	case r == '"', r == '\\', r == '\n', r == '\r', r == '\t':
		return 2
	case r < ' ', r == '\u2028', r == '\u2029':
		return 6
	}
	return utf8.RuneLen(r)
}

// cut shortens text to at most n bytes, between characters.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	n -= len("…")
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

func sizeOf(e *failure.Error) int {
	if e == nil {
		return 0
	}
	return len(e.Message) + len(e.Stack) + len(e.Details) + sizeOf(e.Cause)
}

func checkError(e *failure.Error) error {
	if e == nil {
		return errors.New("no error")
	}
	return checkOptional(e)
}

func checkOptional(e *failure.Error) error {
	if e != nil && e.Kind == "" {
		return errors.New("error without a kind")
	}
	return nil
}
