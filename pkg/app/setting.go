package app

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rondo-run/rondo/services/worker"
)

// Setting is a line of the table of settings: everything that flags, variables, help and documents
// say about a setting comes from here.
type Setting struct {
	// Name is the flag, without dashes.
	Name string
	// Env is the environment variable.
	Env string
	// Section is under which heading it is explained, Help how. In it, the word in backticks stands
	// for the value.
	Section, Help string
	// Secret is never shown, and may stand in a file.
	Secret bool
	// Switch needs no value: it is on when it is there.
	Switch bool

	of     []Command
	access // what of a Config it is
}

// access is how a value is written and read as text.
type access struct {
	get func(*Config) string
	set func(*Config, string) error
	// hint stands for the value in help, unless the help itself has a word for it.
	hint string
	// check tells what is wrong with the value, if anything. It is nil where nothing can be.
	check func(*Config) error
}

// Get gives the value as text. Secrets are hidden, passwords in addresses too.
func (s Setting) Get(c *Config) string {
	v := s.get(c)
	if s.Secret && v != "" {
		return hidden
	}
	return withoutPassword(v)
}

// Set changes the value. The error says what is wrong with it, and what would be right.
func (s Setting) Set(c *Config, value string) error {
	if err := s.set(c, value); err != nil {
		return err
	}
	if s.check != nil {
		return s.check(c)
	}
	return nil
}

const hidden = "(hidden)"

// The passwords in what pgx reads: in settings separated by spaces, and in the query of a URL.
var (
	passwordSetting = regexp.MustCompile(`(?i)(\b(?:ssl)?password\s*=\s*)(?:'(?:[^'\\]|\\.|'')*(?:'|$)|\S+)`)
	bareAddress     = regexp.MustCompile(`^([^:/@=\s]*:)\S*@`)
	passwordInQuery = regexp.MustCompile(`(?i)([?&](?:ssl)?password=)[^&\s]*`)
)

// withoutPassword hides what in addresses with commas between them is a password: what stands
// between the user and the host, or behind "password=", and what NATS takes for a token. Where that
// is not sure, it hides rather too much than too little.
func withoutPassword(addresses string) string {
	if !strings.Contains(addresses, "://") {
		addresses = passwordSetting.ReplaceAllString(addresses, "${1}"+hidden)
		return bareAddress.ReplaceAllString(addresses, "${1}"+hidden+"@")
	}
	parts := strings.Split(addresses, ",")
	for n := 0; n < len(parts); n++ {
		for n+1 < len(parts) && !strings.Contains(parts[n+1], "://") { // the comma belongs to it
			parts[n] += "," + parts[n+1]
			parts = slices.Delete(parts, n+1, n+2)
		}
		parts[n] = withoutPasswordIn(parts[n])
	}
	return strings.Join(parts, ",")
}

func withoutPasswordIn(url string) string {
	scheme, rest, ok := strings.Cut(url, "://")
	at := strings.LastIndexByte(rest, '@')
	if ok && at >= 0 {
		user, _, with := strings.Cut(rest[:at], ":")
		switch {
		case with:
			rest = user + ":" + hidden + rest[at:]
		case !strings.HasPrefix(strings.TrimSpace(scheme), "postgres"): // that is a token
			rest = hidden + rest[at:]
		}
	}
	if ok {
		url = scheme + "://" + rest
	}
	return passwordInQuery.ReplaceAllString(url, "${1}"+hidden)
}

// ---- Kinds of values.

func text(at func(*Config) *string) access {
	return access{
		get: func(c *Config) string { return *at(c) },
		set: func(c *Config, v string) error { *at(c) = strings.TrimSpace(v); return nil },
	}
}

func address(at func(*Config) *string, alsoOff bool) access {
	a := text(at)
	a.check = func(c *Config) error {
		v := *at(c)
		if v == "" || alsoOff && v == off {
			return nil
		}
		return checkAddress(v)
	}
	return a
}

func number(at func(*Config) *int, least int) access {
	return access{
		hint: "number",
		get:  func(c *Config) string { return strconv.Itoa(*at(c)) },
		set: func(c *Config, v string) error {
			n, err := strconv.Atoi(strings.ReplaceAll(strings.TrimSpace(v), "_", ""))
			if err != nil {
				return fmt.Errorf("%q is not a number", v)
			}
			*at(c) = n
			return nil
		},
		check: func(c *Config) error {
			if n := *at(c); n < least {
				return fmt.Errorf("%d; want at least %d", n, least)
			}
			return nil
		},
	}
}

// decimal is a number of any kind, from 0 on.
func decimal(at func(*Config) *float64) access {
	return access{
		hint: "number",
		get:  func(c *Config) string { return strconv.FormatFloat(*at(c), 'f', -1, 64) },
		set: func(c *Config, v string) error {
			x, err := parseFloat(strings.ReplaceAll(strings.TrimSpace(v), "_", ""))
			if err != nil {
				return fmt.Errorf("%q is no number like 100 or 0.5", v)
			}
			*at(c) = x
			return nil
		},
		check: func(c *Config) error {
			if x := *at(c); !(x >= 0) || math.IsInf(x, 0) {
				return fmt.Errorf("%v; want at least 0", x)
			}
			return nil
		},
	}
}

// size is a number of bytes: 1048576, 256MiB.
func size[T int | int64](at func(*Config) *T, least T) access {
	return access{
		hint: "size",
		get:  func(c *Config) string { return inUnits(int64(*at(c))) },
		set: func(c *Config, v string) error {
			n, err := parseSize(strings.TrimSpace(v))
			if err == nil {
				*at(c) = T(n)
			}
			return err
		},
		check: func(c *Config) error {
			if n := *at(c); n < least {
				return fmt.Errorf("%d; want at least %d", n, least)
			}
			return nil
		},
	}
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

func inUnits(n int64) string {
	for _, u := range units {
		if n > 0 && n%u.size == 0 {
			return strconv.FormatInt(n/u.size, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

func duration(at func(*Config) *time.Duration, least time.Duration) access {
	return access{
		hint: "duration",
		get:  func(c *Config) string { return shortly(*at(c)) },
		set: func(c *Config, v string) error {
			d, err := parseDuration(strings.TrimSpace(v))
			if err == nil {
				*at(c) = d
			}
			return err
		},
		check: func(c *Config) error {
			if d := *at(c); d < least {
				return fmt.Errorf("%s; want at least %s", shortly(d), shortly(least))
			}
			return nil
		},
	}
}

// parseDuration reads 90s, 1h30m, and days, 30d.
func parseDuration(v string) (time.Duration, error) {
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

// shortly writes a duration without zeros at its end.
func shortly(d time.Duration) string {
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

func onOff(at func(*Config) *bool) access {
	return access{
		get: func(c *Config) string { return strconv.FormatBool(*at(c)) },
		set: func(c *Config, v string) error {
			on, err := strconv.ParseBool(strings.TrimSpace(v))
			if err != nil {
				return fmt.Errorf("%q is neither true nor false", v)
			}
			*at(c) = on
			return nil
		},
	}
}

// choice is one of several words.
func choice[T comparable](at func(*Config) *T, words map[string]T) access {
	known := slices.Sorted(maps.Keys(words))
	return access{
		hint: strings.Join(known, "|"),
		get: func(c *Config) string {
			for w, v := range words {
				if v == *at(c) {
					return w
				}
			}
			return fmt.Sprint(*at(c))
		},
		set: func(c *Config, v string) error {
			x, ok := words[strings.ToLower(strings.TrimSpace(v))]
			if !ok {
				return fmt.Errorf("%q is none of %s", v, strings.Join(known, ", "))
			}
			*at(c) = x
			return nil
		},
	}
}

// level is choice for levels of a log.
func level(at func(*Config) *slog.Level) access {
	return choice(at, map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn,
		"error": slog.LevelError})
}

// numbers are names with numbers: charge=4,ship=2.
func numbers[T cmp.Ordered](at func(*Config) *map[string]T, parse func(string) (T, error)) access {
	return access{
		hint: "name=number,…",
		get: func(c *Config) string {
			var out []string
			for _, name := range keys(*at(c)) {
				out = append(out, fmt.Sprintf("%s=%v", name, (*at(c))[name]))
			}
			return strings.Join(out, ",")
		},
		set: func(c *Config, v string) error {
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
			*at(c) = m
			return errors.Join(errs...)
		},
	}
}

func parseFloat(v string) (float64, error) { return strconv.ParseFloat(v, 64) }

// The words for tags are those of subjects: _ is for work without a tag, * for any.
const (
	untagged = "_"
	anyTag   = "*"
)

// tags says which work a worker takes.
func tags() access {
	return access{
		get: func(c *Config) string { return strings.Join(c.Tags, ",") },
		set: func(c *Config, v string) error {
			c.Tags = nil
			for tag := range strings.SplitSeq(v, ",") {
				if tag = strings.TrimSpace(tag); tag != "" && !slices.Contains(c.Tags, tag) {
					c.Tags = append(c.Tags, tag)
				}
			}
			return nil
		},
		check: func(c *Config) error {
			if slices.Contains(c.Tags, anyTag) && len(c.Tags) > 1 {
				return fmt.Errorf("%q takes any work, and stands alone", anyTag)
			}
			return nil
		},
	}
}

// tagNames are the tags that are known from the settings; the empty one is for work without a tag.
func (c *Config) tagNames() []string {
	names := slices.DeleteFunc(slices.Clone(c.Tags), func(t string) bool { return t == untagged || t == anyTag })
	if len(names) == len(c.Tags) && len(names) > 0 {
		return names
	}
	return append([]string{""}, names...)
}

// tagFilter is which work the worker takes.
func (c *Config) tagFilter() worker.TagFilter {
	names := c.tagNames()
	switch {
	case len(c.Tags) == 0:
		return c.Worker.Tags
	case slices.Contains(c.Tags, anyTag):
		return worker.Any()
	case len(names) == 1 && names[0] == "":
		return worker.DefaultOnly()
	case names[0] == "":
		return worker.DefaultAnd(names[1:]...)
	}
	return worker.Tags(names...)
}
