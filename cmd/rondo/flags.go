package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rondo-run/rondo/internal/settings"
)

// flagError explains a flag that does not exist, or whose value is invalid.
func flagError(cmd *cobra.Command, err error) error {
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return misuse("--%s %q: %s", invalid.GetFlag().Name, invalid.GetValue(), wanted(invalid))
	}
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return usageError{err}
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
	cmd.InheritedFlags().VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
	name := unknown.GetSpecifiedName()
	switch {
	case len(name) == 1 && strings.Contains("0123456789.", name):
		return misuse("there is no flag -%s; a negative number is an argument only behind --: "+
			"rondo start add --id a-1 -- -5", name)
	case len(name) == 1:
		return misuse("there is no flag -%s", name)
	}
	if ours, is := elsewhere[name]; is {
		return misuse("there is no flag --%s; did you mean %s?", name, ours)
	}
	if rest, is := strings.CutPrefix(name, "nats-"); is { // --nats-ca is nearer to --nats than to --nats-tls-ca
		for _, n := range names {
			if strings.HasPrefix(n, "--nats-") && strings.HasSuffix(n, "-"+rest) {
				return misuse("there is no flag --%s; did you mean %s?", name, n)
			}
		}
	}
	return misuse("there is no flag --%s%s", name, settings.DidYouMean("--"+name, names))
}

// elsewhere has flags of the nats command and others, and what they are called here.
var elsewhere = map[string]string{"server": "--nats", "context": "--nats-context", "json": "--output json"}

// wanted tells what a flag with an invalid value takes.
func wanted(e *pflag.InvalidValueError) string {
	switch e.GetFlag().Value.Type() {
	case "int", "int64":
		if errors.Is(e.Unwrap(), strconv.ErrRange) {
			return fmt.Sprintf("out of range; want %d to %d", math.MinInt64, math.MaxInt64)
		}
		return "want a whole number, like 10"
	case "duration":
		return "want a duration, like 90s, 5m or 30d"
	case "bool":
		return "want true or false"
	}
	return e.Unwrap().Error()
}

// durationFlag is a duration, with days as in settings.
type durationFlag struct{ to *time.Duration }

var _ pflag.Value = durationFlag{}

func (f durationFlag) Set(value string) (err error) {
	*f.to, err = settings.ParseDuration(value)
	return err
}

func (durationFlag) Type() string { return "duration" }

func (f durationFlag) String() string {
	if f.to == nil || *f.to == 0 { // pflag compares the default with the zero value
		return "0"
	}
	return f.to.String()
}

// durationVar adds a flag for a duration.
func durationVar(flags *pflag.FlagSet, to *time.Duration, name string, usual time.Duration, usage string) {
	*to = usual
	flags.Var(durationFlag{to}, name, usage)
}

// attributeFlag is the value of --attribute: key=value, several with commas or several flags.
type attributeFlag struct{ to *map[string]string }

var _ pflag.Value = attributeFlag{}

func (f attributeFlag) Set(value string) error {
	if value == "" { // emptyFlags refuses it
		return nil
	}
	pairs, err := csv.NewReader(strings.NewReader(value)).Read()
	if err != nil {
		return errors.New("want key=value")
	}
	for _, p := range pairs {
		k, v, ok := strings.Cut(p, "=")
		if !ok {
			return errors.New("want key=value")
		}
		if before, twice := (*f.to)[k]; twice {
			return fmt.Errorf("attribute %q was given before, as %q: an attribute has one value", k, before)
		}
		if *f.to == nil {
			*f.to = make(map[string]string)
		}
		(*f.to)[k] = v
	}
	return nil
}

func (attributeFlag) Type() string { return "attribute" }

func (f attributeFlag) String() string {
	var pairs []string
	if f.to != nil { // pflag compares the default with the zero value
		for _, k := range slices.Sorted(maps.Keys(*f.to)) {
			pairs = append(pairs, k+"="+(*f.to)[k])
		}
	}
	return strings.Join(pairs, ",")
}
