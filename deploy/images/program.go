package main

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
)

const (
	rondo = "github.com/rondo-run/rondo"
	stock = rondo + "/cmd/rondo"
	self  = rondo + "/deploy/images"
)

// program is a package main to build.
type program struct {
	path string // its import path
	name string // of the binary
	dir  string // where the go command runs
}

// findPrograms finds the programs that match the patterns on the command line.
func findPrograms(ctx context.Context, dir string, patterns []string) ([]program, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	for i, p := range patterns { // relative to dir; the go command may run in another directory
		if p == "." || p == ".." || strings.HasPrefix(p, "./") || strings.HasPrefix(p, "../") {
			patterns[i] = filepath.Join(dir, p)
		}
	}
	root, module, err := moduleOf(dir)
	if err != nil {
		return nil, err
	}
	if module == self { // there is nothing to build here but this command
		dir = filepath.Join(root, "..", "..")
		if _, module, err = moduleOf(dir); err != nil {
			return nil, err
		}
	}
	if len(patterns) == 0 {
		if module != rondo {
			return nil, fmt.Errorf(
				"which program? Name its package, such as ./cmd/orders (the command line rondo is built in a clone "+
					"of Rondo, and this is %s)", module)
		}
		patterns = []string{stock}
	}
	var programs []program
	for _, p := range patterns {
		found, err := findPattern(ctx, dir, p)
		if err != nil {
			return nil, err
		}
		programs = append(programs, found...)
	}
	named := make(map[string]string)
	for _, p := range programs {
		if before, twice := named[p.name]; twice {
			return nil, fmt.Errorf("%s and %s would both be called %s: build one after the other", before,
				p.path, p.name)
		}
		named[p.name] = p.path
	}
	return programs, nil
}

// moduleOf finds the module that a directory belongs to.
func moduleOf(dir string) (root, module string, err error) {
	for at := dir; ; at = filepath.Dir(at) {
		text, err := os.ReadFile(filepath.Join(at, "go.mod"))
		switch {
		case err == nil:
			return at, modfile.ModulePath(text), nil
		case !errors.Is(err, os.ErrNotExist) && !strings.Contains(err.Error(), "not a directory"):
			return "", "", err
		case at == filepath.Dir(at):
			return "", "", fmt.Errorf(
				"%s is in no Go module: run this where your go.mod is, or name the directory with -C", dir)
		}
	}
}

// findPattern asks the go command for packages.
func findPattern(ctx context.Context, dir, pattern string) ([]program, error) {
	if strings.HasSuffix(pattern, ".go") {
		return nil, fmt.Errorf("%s is a file: name the directory of the package", pattern)
	}
	out, err := goCommand(ctx, dir, platform{arch: "amd64"}.environment(), "list", "-find", "-json=ImportPath,Name",
		"--", pattern)
	if err != nil {
		return nil, fmt.Errorf("looking for %s: %w", pattern, err)
	}
	many := strings.Contains(pattern, "...")
	var found []program
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct{ ImportPath, Name string }
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("reading what go list says of %s: %w", pattern, err)
		}
		switch {
		case p.Name == "main":
			found = append(found, program{path: p.ImportPath, name: binaryName(p.ImportPath), dir: dir})
		case !many:
			return nil, fmt.Errorf(
				"%s is package %s, which is no program: name the one whose files begin with package main",
				p.ImportPath, p.Name)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("there is no program in %s: name a package whose files begin with package main", pattern)
	}
	return found, nil
}

var majorVersion = regexp.MustCompile(`^v[1-9][0-9]*$`)

// binaryName is how go build calls a program.
func binaryName(importPath string) string {
	base := path.Base(importPath)
	if parent := path.Dir(importPath); majorVersion.MatchString(base) && parent != "." {
		return path.Base(parent)
	}
	return base
}

// goCommand runs the go command and returns its output.
func goCommand(ctx context.Context, dir string, env []string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), append(env, "PWD="+dir)...)
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	var exit *exec.ExitError
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return nil, errors.New("the go command is not in PATH: install Go from https://go.dev/dl")
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.As(err, &exit) && problems.Len() > 0:
		return nil, errors.New(strings.TrimSpace(problems.String()))
	case err != nil:
		return nil, fmt.Errorf("go %s: %w", args[0], err)
	}
	return out, nil
}

// settingsOfGo asks the go command for its flags, and for its directory: the go command of the
// module may be another one than that in PATH.
func settingsOfGo(ctx context.Context, dir string) (s struct{ GOROOT, GOFLAGS string }, err error) {
	out, err := goCommand(ctx, dir, nil, "env", "-json", "GOROOT", "GOFLAGS")
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(out, &s)
}

// binary is a program, built for a platform.
type binary struct {
	program  program
	platform platform
	content  []byte
	info     *buildinfo.BuildInfo
	sha1     string // which SPDX wants
	sha256   string
}

// build compiles a program. Neither the directory nor the time is in the result: -trimpath takes
// away the one, and Go writes no other time than that of the commit. The build id is taken away as
// well, because it is the only thing in a binary that depends on how its parts were called while
// they were built.
func (p program) build(ctx context.Context, at platform, file string) (binary, error) {
	_, err := goCommand(ctx, p.dir, at.environment(), "build", "-trimpath", "-ldflags=-s -w -buildid=", "-o",
		file, "--", p.path)
	if err != nil {
		return binary{}, fmt.Errorf("building %s for %s: %w", p.path, at, err)
	}
	b := binary{program: p, platform: at}
	if b.content, err = os.ReadFile(file); err != nil {
		return binary{}, err
	}
	if b.info, err = buildinfo.Read(bytes.NewReader(b.content)); err != nil {
		return binary{}, fmt.Errorf("reading what %s says of itself: %w", p.name, err)
	}
	if err := checkStatic(b.content); err != nil {
		return binary{}, fmt.Errorf("%s for %s: %w", p.path, at, err)
	}
	one, other := sha1.Sum(b.content), sha256.Sum256(b.content)
	b.sha1, b.sha256 = hex.EncodeToString(one[:]), hex.EncodeToString(other[:])
	return b, os.Remove(file)
}

// checkStatic makes sure that a binary needs no other file, because there is none in the image.
func checkStatic(content []byte) error {
	f, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return fmt.Errorf("it is no ELF file: %w", err)
	}
	defer func() { _ = f.Close() }() // there is no file to close
	if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return errors.New("it is not static, and an image from scratch has no dynamic linker: does GOFLAGS say " +
			"-buildmode=pie or -linkshared?")
	}
	return nil
}

// setting is a setting of the build that Go has recorded in the binary; "" if there is none.
func (b binary) setting(key string) string {
	for _, s := range b.info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

// remark warns a user that expects the image to name its commit; "" if the image does.
func (b binary) remark(goflags string) string {
	switch revision := b.setting("vcs.revision"); {
	case revision == "" && strings.Contains(goflags, "-buildvcs=false"):
		return "GOFLAGS says -buildvcs=false, so neither the program nor the image says from which commit it is"
	case revision == "":
		return "Go found no commit to write into the program, so neither it nor the image says from which one it is"
	case b.setting("vcs.modified") == "true":
		return "there are files that are not committed, so nobody else can build the same image"
	}
	return ""
}

// creation is the only time in an image: that of SOURCE_DATE_EPOCH, that of the commit, or 1970.
func creation(epoch, commit string) (time.Time, error) {
	if epoch != "" {
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil || seconds < 0 {
			return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH is %q: want the seconds since 1970", epoch)
		}
		return time.Unix(seconds, 0).UTC(), nil
	}
	if commit != "" {
		at, err := time.Parse(time.RFC3339, commit)
		if err != nil {
			return time.Time{}, fmt.Errorf("the time of the commit: %w", err)
		}
		return at.UTC().Truncate(time.Second), nil
	}
	return time.Unix(0, 0).UTC(), nil
}
