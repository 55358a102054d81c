package settings

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// kind is how a value is written and read as text. Its functions get a pointer to the value.
type kind struct {
	get func(at any) string
	set func(at any, text string) error
	// check validates the value. It is nil if every value is valid.
	check func(at any) error
	// hint stands for the value in help, unless the help itself has a word for it.
	hint string
}

// kindOf makes a kind of values of a type. The check may be nil.
func kindOf[T any](hint string, write func(T) string, read func(string) (T, error), check func(T) error) kind {
	k := kind{
		hint: hint,
		get:  func(at any) string { return write(*at.(*T)) },
		set: func(at any, text string) error {
			v, err := read(strings.TrimSpace(text))
			if err == nil {
				*at.(*T) = v
			}
			return err
		},
	}
	if check != nil {
		k.check = func(at any) error { return check(*at.(*T)) }
	}
	return k
}

func text(check func(string) error) kind {
	same := func(v string) string { return v }
	return kindOf("", same, func(v string) (string, error) { return v, nil }, check)
}

// Off is the address of a server that does not run.
const Off = "off"

// CheckAddress wants host:port.
func CheckAddress(address string) error {
	if _, port, err := net.SplitHostPort(address); err != nil || port == "" {
		return fmt.Errorf("%q is not an address like 127.0.0.1:8080, or 0.0.0.0:8080 for all networks", address)
	}
	return nil
}

// address is the check of an address that may be empty.
func address(v string) error {
	if v == "" {
		return nil
	}
	return CheckAddress(v)
}

func addressOrOff(v string) error {
	if v == Off {
		return nil
	}
	return address(v)
}

var goodPrefix = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,31}$`)

func checkPrefix(v string) error {
	if !goodPrefix.MatchString(v) {
		return fmt.Errorf("%q; want a letter, then letters, digits, - and _, 32 at most", v)
	}
	return nil
}

// atLeast is the check of a value with a lower bound.
func atLeast[T cmp.Ordered](least T, write func(T) string) func(T) error {
	return func(v T) error {
		if v < least {
			return fmt.Errorf("%s; want at least %s", write(v), write(least))
		}
		return nil
	}
}

func parseInt(v string) (int, error) {
	n, err := strconv.Atoi(strings.ReplaceAll(v, "_", ""))
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("%q is out of range; want %d to %d", v, math.MinInt, math.MaxInt)
	case err != nil:
		return 0, fmt.Errorf("%q is not a number", v)
	}
	return n, nil
}

func number(least int) kind {
	return kindOf("number", strconv.Itoa, parseInt, atLeast(least, strconv.Itoa))
}

func replicas() kind {
	return kindOf("number", strconv.Itoa, parseInt, func(n int) error {
		if n != 0 && n != 1 && n != 3 && n != 5 {
			return fmt.Errorf("%d; want 1, 3 or 5, or 0 for what is there", n)
		}
		return nil
	})
}

func parseFloat(v string) (float64, error) { return strconv.ParseFloat(v, 64) }

// decimal is a number of any kind, from 0 on.
func decimal() kind {
	return kindOf("number",
		func(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) },
		func(v string) (float64, error) {
			x, err := parseFloat(strings.ReplaceAll(v, "_", ""))
			if err != nil {
				return 0, fmt.Errorf("%q is no number like 100 or 0.5", v)
			}
			return x, nil
		},
		func(x float64) error {
			if !(x >= 0) || math.IsInf(x, 0) {
				return fmt.Errorf("%v; want at least 0", x)
			}
			return nil
		})
}

// size is a number of bytes: 1048576, 256MiB.
func size[T int | int64](least T) kind {
	return kindOf("size",
		func(n T) string { return FormatSize(int64(n)) },
		func(v string) (T, error) {
			n, err := parseSize(v)
			return T(n), err
		},
		atLeast(least, func(n T) string { return strconv.FormatInt(int64(n), 10) }))
}

var units = []struct {
	name string
	size int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

func parseSize(v string) (int64, error) {
	number, unit := v, int64(1)
	for _, u := range units {
		if rest, ok := strings.CutSuffix(v, u.name); ok {
			number, unit = strings.TrimSpace(rest), u.size
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n > 1<<50/unit {
		return 0, fmt.Errorf("%q is not a size; write it like 1048576, 512KiB, 256MiB or 2GiB", v)
	}
	return n * unit, nil
}

// FormatSize writes a number of bytes in the largest unit that needs no fraction.
func FormatSize(n int64) string {
	for _, u := range units {
		if n > 0 && n%u.size == 0 {
			return strconv.FormatInt(n/u.size, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

func duration(least time.Duration) kind {
	return kindOf("duration", FormatDuration, ParseDuration, atLeast(least, FormatDuration))
}

// ParseDuration reads a duration such as 90s or 1h30m, or days, such as 30d.
func ParseDuration(v string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(v, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n >= 0 && n < 100_000 {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration; write it like 30s, 5m, 12h or 30d", v)
	}
	return d, nil
}

// FormatDuration writes a duration without zeros at its end.
func FormatDuration(d time.Duration) string {
	if d > 0 && d%(24*time.Hour) == 0 {
		return strconv.Itoa(int(d/(24*time.Hour))) + "d"
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func parseBool(v string) (bool, error) {
	on, err := strconv.ParseBool(v)
	if err != nil {
		return false, fmt.Errorf("%q is neither true nor false", v)
	}
	return on, nil
}

func onOff() kind { return kindOf("", strconv.FormatBool, parseBool, nil) }

// offOn is a switch whose field is true where it is off, so that the zero value is on.
func offOn() kind {
	return kindOf("", func(off bool) string { return strconv.FormatBool(!off) },
		func(v string) (bool, error) {
			on, err := parseBool(v)
			return !on, err
		}, nil)
}

// choice is one of several words.
func choice[T comparable](words map[string]T) kind {
	known := slices.Sorted(maps.Keys(words))
	return kindOf(strings.Join(known, "|"),
		func(x T) string {
			for w, v := range words {
				if v == x {
					return w
				}
			}
			return fmt.Sprint(x)
		},
		func(v string) (x T, err error) {
			x, ok := words[strings.ToLower(v)]
			if !ok {
				return x, fmt.Errorf("%q is none of %s", v, strings.Join(known, ", "))
			}
			return x, nil
		}, nil)
}

// level is choice for levels of a log.
func level() kind {
	return choice(map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn,
		"error": slog.LevelError})
}

// numbers are names with numbers: charge=4,ship=2. Set keeps the valid ones.
func numbers[T cmp.Ordered](parse func(string) (T, error)) kind {
	k := kindOf("name=number,…", func(m map[string]T) string {
		var out []string
		for _, name := range slices.Sorted(maps.Keys(m)) {
			out = append(out, fmt.Sprintf("%s=%v", name, m[name]))
		}
		return strings.Join(out, ",")
	}, nil, nil)
	k.set = func(at any, v string) error {
		m := make(map[string]T)
		var errs []error
		for part := range strings.SplitSeq(v, ",") {
			if strings.TrimSpace(part) == "" {
				continue
			}
			name, n, ok := strings.Cut(part, "=")
			x, err := parse(strings.TrimSpace(n))
			if !ok || err != nil || x <= *new(T) {
				errs = append(errs, fmt.Errorf("%q is not a name with a number above 0, like charge=4",
					strings.TrimSpace(part)))
				continue
			}
			m[strings.TrimSpace(name)] = x
		}
		*at.(*map[string]T) = m
		return errors.Join(errs...)
	}
	return k
}

// AnyTag stands for tasks with any tag, as in subjects.
const AnyTag = "*"

// tags says which tasks a worker takes.
func tags() kind {
	return kindOf("", func(tags []string) string { return strings.Join(tags, ",") },
		func(v string) (tags []string, err error) {
			for tag := range strings.SplitSeq(v, ",") {
				if tag = strings.TrimSpace(tag); tag != "" && !slices.Contains(tags, tag) {
					tags = append(tags, tag)
				}
			}
			return tags, nil
		},
		func(tags []string) error {
			if slices.Contains(tags, AnyTag) && len(tags) > 1 {
				return fmt.Errorf("%q takes any work, and stands alone", AnyTag)
			}
			return nil
		})
}
