package settings

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// configVariable names the file with settings where no flag does.
const configVariable = envPrefix + "CONFIG"

// readFile reads settings from a YAML file: the names of the flags with their values. It ignores
// the settings of other commands, so that one file does for all.
//
//	nats: nats://nats-0:4222,nats://nats-1:4222
//	tags: [gpu, _]
//	slots-per-activity: {charge: 4}
func readFile(path string) (values map[string]string, problems []error) {
	bad := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("%s: "+format, append([]any{path}, args...)...))
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, []error{fmt.Errorf("the file with settings: %w", err)}
	}
	var all map[string]yaml.Node
	if err := yaml.Unmarshal(data, &all); err != nil {
		bad("%v; want lines like `log-level: debug`", errors.New(strings.TrimPrefix(err.Error(), "yaml: ")))
		return nil, problems
	}
	known := make(map[string]bool)
	var names []string
	for _, s := range For("") {
		known[s.Name] = true
		names = append(names, s.Name)
	}
	values = make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !known[name] {
			bad("%s is no setting%s", name, DidYouMean(name, names))
			continue
		}
		node := all[name]
		value, err := flat(&node)
		if err != nil {
			bad("%s, line %d: %v", name, node.Line, err)
			continue
		}
		values[name] = value
	}
	return values, problems
}

// flat writes a value as a flag has it.
func flat(n *yaml.Node) (string, error) {
	switch n.Kind {
	case yaml.ScalarNode:
		if n.Tag == "!!null" {
			return "", nil
		}
		return n.Value, nil
	case yaml.SequenceNode:
		var list []string
		for _, x := range n.Content {
			if x.Kind != yaml.ScalarNode {
				return "", errors.New("want a list of words")
			}
			list = append(list, x.Value)
		}
		return strings.Join(list, ","), nil
	case yaml.MappingNode:
		var list []string
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i+1].Kind != yaml.ScalarNode {
				return "", errors.New("want names with values")
			}
			list = append(list, n.Content[i].Value+"="+n.Content[i+1].Value)
		}
		return strings.Join(list, ","), nil
	}
	return "", errors.New("want a value")
}
