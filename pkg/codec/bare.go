package codec

import "unicode/utf8"

// isBare reports whether bytes are JSON that can stand inside other JSON and is read back as the
// same bytes: without white space outside of strings, and not nested too deep. Each payload passes
// here several times, so it looks at each byte once, where encoding/json and a second search for
// white space take several times as long.
func isBare(p []byte) bool {
	if !utf8.Valid(p) {
		return false
	}
	var few [32]byte
	open := few[:0] // the open brackets: { or [
	i := 0
	for {
		// A value begins here.
		if i >= len(p) {
			return false
		}
		switch c := p[i]; {
		case c == '{':
			if open = append(open, c); len(open) > maxDepth {
				return false
			}
			if i++; i < len(p) && p[i] == '}' {
				break // an empty one ends as any other
			}
			if i = skipName(p, i); i < 0 {
				return false
			}
			continue
		case c == '[':
			if open = append(open, c); len(open) > maxDepth {
				return false
			}
			if i++; i < len(p) && p[i] == ']' {
				break
			}
			continue
		default:
			if i = skipScalar(p, i); i < 0 {
				return false
			}
		}
		// It has ended: the open value ends with it, or goes on.
		for {
			if len(open) == 0 {
				return i == len(p)
			}
			if i >= len(p) {
				return false
			}
			c, in := p[i], open[len(open)-1]
			i++
			if c == '}' && in == '{' || c == ']' && in == '[' {
				open = open[:len(open)-1]
				continue
			}
			if c != ',' {
				return false
			}
			if in == '{' {
				if i = skipName(p, i); i < 0 {
					return false
				}
			}
			break
		}
	}
}

// skipName skips the name of a field with its colon. It gives -1 if there is none.
func skipName(p []byte, i int) int {
	if i >= len(p) || p[i] != '"' {
		return -1
	}
	if i = skipString(p, i); i < 0 || i >= len(p) || p[i] != ':' {
		return -1
	}
	return i + 1
}

// skipScalar skips a value that holds no others.
func skipScalar(p []byte, i int) int {
	switch c := p[i]; {
	case c == '"':
		return skipString(p, i)
	case c == '-' || '0' <= c && c <= '9':
		return skipNumber(p, i)
	case c == 't':
		return skipWord(p, i, "true")
	case c == 'f':
		return skipWord(p, i, "false")
	case c == 'n':
		return skipWord(p, i, "null")
	}
	return -1
}

func skipWord(p []byte, i int, word string) int {
	if len(p)-i < len(word) || string(p[i:i+len(word)]) != word {
		return -1
	}
	return i + len(word)
}

func skipString(p []byte, i int) int {
	for i++; i < len(p); i++ {
		switch c := p[i]; {
		case c == '"':
			return i + 1
		case c < ' ':
			return -1
		case c == '\\':
			if i++; i >= len(p) {
				return -1
			}
			switch p[i] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				for range 4 {
					if i++; i >= len(p) || !isHex(p[i]) {
						return -1
					}
				}
			default:
				return -1
			}
		}
	}
	return -1
}

func isHex(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F' }

func skipNumber(p []byte, i int) int {
	if p[i] == '-' {
		i++
	}
	switch {
	case i < len(p) && p[i] == '0':
		i++
	default:
		if i = skipDigits(p, i); i < 0 {
			return -1
		}
	}
	if i < len(p) && p[i] == '.' {
		if i = skipDigits(p, i+1); i < 0 {
			return -1
		}
	}
	if i < len(p) && (p[i] == 'e' || p[i] == 'E') {
		i++
		if i < len(p) && (p[i] == '+' || p[i] == '-') {
			i++
		}
		return skipDigits(p, i)
	}
	return i
}

// skipDigits skips at least one.
func skipDigits(p []byte, i int) int {
	from := i
	for i < len(p) && '0' <= p[i] && p[i] <= '9' {
		i++
	}
	if i == from {
		return -1
	}
	return i
}
