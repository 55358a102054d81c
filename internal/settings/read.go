package settings

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// Environment looks a variable up; [os.LookupEnv] is one.
type Environment func(name string) (value string, ok bool)

// Reading is the result of reading settings.
type Reading struct {
	// From has the source of each value: "flag", "environment", "file" for one that a variable
	// names, the name of the file with settings, or nothing for a value that the program had.
	From map[string]string
	// Rest are the arguments that are no settings.
	Rest []string
	// Help and PrintConfig say that the operator wants to read instead of run.
	Help, PrintConfig bool

	file string // with settings
}

// Read sets the fields of a configuration that flags, the environment and the file with settings
// name: a flag wins over a variable, which wins over the file, which wins over the former value. It
// reads everything and returns all problems.
func Read(config any, table []Setting, args []string, env Environment) (r Reading, problems []error) {
	r.From = make(map[string]string)
	flags, problems := r.split(table, args)
	if r.file == "" {
		r.file, _ = env(configVariable)
	}
	var file map[string]string
	if r.file != "" {
		var bad []error
		file, bad = readFile(r.file)
		problems = append(problems, bad...)
	}
	for _, s := range table {
		values := flags[s.Name]
		if len(values) == 0 {
			problems = append(problems, r.fromEnvironment(config, s, env)...)
			if value := file[s.Name]; value != "" && r.From[s.Name] == "" {
				r.From[s.Name] = r.file
				if err := s.Set(config, value); err != nil {
					problems = append(problems, &Invalid{s.Name, r.file + ": " + s.Name, err})
				}
			}
			continue
		}
		r.From[s.Name] = "flag"
		for _, v := range values { // as usual, the last one counts
			if err := s.Set(config, v); err != nil {
				problems = append(problems, &Invalid{s.Name, "--" + s.Name, err})
			}
		}
	}
	return r, problems
}

// Invalid is the error of a setting with an invalid value.
type Invalid struct {
	Setting string
	Where   string // the flag, the variable or the line of a file that has the value
	Err     error
}

func (e *Invalid) Error() string { return e.Where + ": " + e.Err.Error() }
func (e *Invalid) Unwrap() error { return e.Err }

func (r *Reading) fromEnvironment(config any, s Setting, env Environment) (problems []error) {
	value, ok := env(s.Env)
	from, where := "environment", s.Env
	if s.Secret || s.Name == "database" {
		file, inFile := env(s.Env + "_FILE")
		switch {
		case inFile && ok:
			return []error{fmt.Errorf("%s and %s_FILE are mutually exclusive", s.Env, s.Env)}
		case inFile && file != "":
			data, err := os.ReadFile(file)
			if err != nil {
				return []error{fmt.Errorf("%s_FILE: %w", s.Env, err)}
			}
			value, ok, from, where = string(data), true, "file", s.Env+"_FILE"
		}
	}
	if !ok || value == "" { // an empty variable is how many tools write "not set"
		return nil
	}
	r.From[s.Name] = from
	if err := s.Set(config, value); err != nil {
		return []error{&Invalid{s.Name, where, err}}
	}
	return nil
}

// split takes arguments apart: --name value, --name=value, --switch, and one dash will do.
func (r *Reading) split(table []Setting, args []string) (values map[string][]string, problems []error) {
	values = make(map[string][]string)
	for i := 0; i < len(args); i++ {
		name, isFlag := strings.CutPrefix(args[i], "-")
		name = strings.TrimPrefix(name, "-")
		if !isFlag || name == "" {
			r.Rest = append(r.Rest, args[i])
			continue
		}
		name, value, hasValue := strings.Cut(name, "=")
		switch name {
		case "h", "help":
			r.Help = true
			continue
		case "print-config":
			r.PrintConfig = true
			continue
		}
		at := slices.IndexFunc(table, func(s Setting) bool { return s.Name == name })
		switch {
		case name == "config" && hasValue && value != "":
			r.file = value
			continue
		case name == "config" && !hasValue && i+1 < len(args) && args[i+1] != "":
			i++
			r.file = args[i]
			continue
		case name == "config":
			problems = append(problems, errors.New("--config: it needs the name of a file"))
			continue
		case at < 0:
			problems = append(problems, fmt.Errorf("--%s: there is no such setting%s", name, meant(name, table)))
			if !hasValue && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
				i++ // most likely its value
			}
			continue
		case !hasValue && table[at].Switch:
			value = "true"
		case !hasValue && (i+1 == len(args) || strings.HasPrefix(args[i+1], "--")):
			problems = append(problems, fmt.Errorf("--%s: it needs a value", name))
			continue
		case !hasValue:
			i++
			value = args[i]
		}
		if strings.TrimSpace(value) == "" { // most likely a variable of a shell that is not set
			problems = append(problems, EmptyFlag(name))
			continue
		}
		values[name] = append(values[name], value)
	}
	return values, problems
}

// EmptyFlag is the error of a flag with an empty value. It would mean the same as no flag, which is
// not what the operator has typed.
func EmptyFlag(name string) error {
	return fmt.Errorf("--%s: the value is empty; give it a value, or leave the flag out", name)
}

// meant names the flag that the operator may have meant, perhaps by the name of its variable.
func meant(name string, table []Setting) string {
	var names []string
	of := make(map[string]string)
	for _, s := range table {
		variable := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(s.Env, envPrefix), "_", "-"))
		of[variable], of[s.Name] = s.Name, s.Name
		names = append(names, s.Name, variable)
	}
	if best := nearest(name, names); best != "" {
		return "; did you mean --" + of[best] + "?"
	}
	return ""
}

// UnknownVariables lists the variables that look as if they were settings and are none.
func UnknownVariables(environ []string) (problems []string) {
	var known []string
	for _, s := range For("") {
		known = append(known, s.Env, s.Env+"_FILE")
	}
	known = append(known, configVariable)
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		if strings.HasPrefix(name, envPrefix) && !strings.HasPrefix(name, envPrefix+"TEST_") &&
			!slices.Contains(known, name) {
			problems = append(problems, fmt.Sprintf("the variable %s is no setting%s", name, DidYouMean(name, known)))
		}
	}
	return problems
}
