package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// platform is a target of a build.
type platform struct {
	arch, variant string
	// level is the environment variable that sets the variant for go build, with its value.
	level string
}

// architectures are those for which Go builds programs for Linux, with the variants that images can
// name, the usual one first.
var architectures = map[string][]platform{
	"386": {{"386", "", ""}},
	"amd64": {{"amd64", "", "GOAMD64=v1"}, {"amd64", "v2", "GOAMD64=v2"}, {"amd64", "v3", "GOAMD64=v3"},
		{"amd64", "v4", "GOAMD64=v4"}},
	"arm":      {{"arm", "v7", "GOARM=7"}, {"arm", "v6", "GOARM=6"}, {"arm", "v5", "GOARM=5"}},
	"arm64":    {{"arm64", "", "GOARM64=v8.0"}},
	"loong64":  {{"loong64", "", ""}},
	"mips64le": {{"mips64le", "", ""}},
	"ppc64le":  {{"ppc64le", "", ""}},
	"riscv64":  {{"riscv64", "", ""}},
	"s390x":    {{"s390x", "", ""}},
}

// String says it as others do: linux/arm/v7.
func (p platform) String() string {
	return strings.TrimSuffix("linux/"+p.arch+"/"+p.variant, "/")
}

// environment tells go build of it.
func (p platform) environment() []string {
	env := []string{"CGO_ENABLED=0", "GOOS=linux", "GOARCH=" + p.arch}
	if p.level != "" {
		env = append(env, p.level)
	}
	return env
}

// described is the platform as an index of images has it.
func (p platform) described() *v1.Platform {
	return &v1.Platform{OS: "linux", Architecture: p.arch, Variant: p.variant}
}

// parsePlatforms reads a list with commas.
func parsePlatforms(list string) (all []platform, err error) {
	for s := range strings.SplitSeq(list, ",") {
		p, err := parsePlatform(strings.TrimSpace(s))
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

func parsePlatform(s string) (platform, error) {
	system, rest, _ := strings.Cut(s, "/")
	arch, variant, _ := strings.Cut(rest, "/")
	switch {
	case s == "":
		return platform{}, errors.New("a platform is missing, such as linux/amd64")
	case system != "linux":
		return platform{}, fmt.Errorf("images are for Linux, as in linux/amd64, and not for %q", s)
	}
	variants := architectures[arch]
	if variants == nil {
		return platform{}, fmt.Errorf("there is no platform %s; there are %s", s, strings.Join(knownPlatforms(), ", "))
	}
	if arch == "arm64" && variant == "v8" || arch == "amd64" && variant == "v1" { // other words for the usual one
		variant = ""
	}
	if variant == "" {
		return variants[0], nil
	}
	for _, p := range variants {
		if p.variant == variant {
			return p, nil
		}
	}
	return platform{}, fmt.Errorf("there is no platform %s; there are %s", s, strings.Join(knownPlatforms(), ", "))
}

func knownPlatforms() (all []string) {
	for _, variants := range architectures {
		for _, p := range variants {
			all = append(all, p.String())
		}
	}
	slices.Sort(all)
	return all
}
