package main

import (
	"cmp"
	"context"
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"fmt"
	"maps"
	"net"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// TestStock builds the image of the command line rondo, for this machine and for arm64, and looks
// at all that is said of it.
func TestStock(t *testing.T) {
	withCommits(t)
	output := filepath.Join(t.TempDir(), "images")
	archs := []string{runtime.GOARCH}
	if runtime.GOARCH != "arm64" {
		archs = append(archs, "arm64")
	}
	said, _ := images(t, "-output", output, "-platform", "linux/"+strings.Join(archs, ",linux/"))
	t.Log(said)
	index := indexIn(t, output)
	for _, arch := range archs {
		t.Run(arch, func(t *testing.T) {
			image := imageFor(t, index, arch)
			u := unpack(t, image)
			program := filepath.Join(u.dir, "usr/local/bin/rondo")
			checkSettings(t, image, "/usr/local/bin/rondo", arch)
			checkFiles(t, u, "usr/local/bin/rondo")
			checkELF(t, program, arch)
			checkLabels(t, index, image, program)
			bill := checkBill(t, output, image, "rondo-linux-"+arch, "usr/local/bin/rondo", program)
			if len(bill.Packages) < 40 {
				t.Errorf("the SBOM has %d packages; rondo is made of more", len(bill.Packages))
			}
			if arch == runtime.GOARCH && runtime.GOOS == "linux" {
				runStock(t, program, labelsOf(t, image))
			}
		})
	}
}

// runStock runs the program: its version is that of the labels, and without NATS it fails with an
// understandable error.
func runStock(t *testing.T, program string, labels map[string]string) {
	version, code := execute(t, program, "version")
	want := "rondo " + cmp.Or(labels[labelVersion], "(devel)")
	if revision := labels[labelRevision]; revision != "" {
		want += ", revision " + revision[:12]
	}
	if code != 0 || !strings.HasPrefix(version, want) {
		t.Errorf("version exits with %d and says %q, want %q", code, version, want)
	}

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := "nats://" + l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	said, code := execute(t, program, "doctor", "--nats", address)
	if code == 0 || strings.Contains(said, "panic") || !strings.Contains(said, "connect to "+address) ||
		!strings.Contains(said, "problems were found") {
		t.Errorf("doctor exits with %d and says %q", code, said)
	}
}

func execute(t *testing.T, program string, args ...string) (said string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env = t.TempDir(), []string{"HOME=/"}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(out), exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	return string(out), 0
}

// checkSettings looks at what a container engine reads.
func checkSettings(t *testing.T, image v1.Image, entrypoint, arch string) {
	t.Helper()
	c, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if c.OS != "linux" || c.Architecture != arch {
		t.Errorf("the image is for %s/%s, want linux/%s", c.OS, c.Architecture, arch)
	}
	got := fmt.Sprintf("%q %q %s %s %q", c.Config.Entrypoint, c.Config.Cmd, c.Config.User,
		c.Config.WorkingDir, c.Config.Env)
	want := fmt.Sprintf(`[%q] [] 65532:65532 / ["PATH=/usr/local/bin" "ZONEINFO=/usr/share/zoneinfo.zip"]`, entrypoint)
	if got != want {
		t.Errorf("the settings are\n%s, want\n%s", got, want)
	}
	if created := c.Created.Format(time.RFC3339); created != c.Config.Labels[labelCreated] || len(c.History) != 1 ||
		!c.History[0].Created.Equal(c.Created.Time) {
		t.Errorf("it was created %s, by its label %s, with the history %v", created,
			c.Config.Labels[labelCreated], c.History)
	}
}

// checkFiles looks at every file: nothing else is there, the program can change nothing but /tmp,
// and there is no shell.
func checkFiles(t *testing.T, u unpacked, program string) {
	t.Helper()
	want := map[string]string{
		"etc/": "drwxr-xr-x", "etc/group": "-rw-r--r--", "etc/passwd": "-rw-r--r--",
		"etc/ssl/": "drwxr-xr-x", "etc/ssl/certs/": "drwxr-xr-x", "etc/ssl/certs/ca-certificates.crt": "-rw-r--r--",
		"tmp/": "dtrwxrwxrwx", "usr/": "drwxr-xr-x", "usr/local/": "drwxr-xr-x", "usr/local/bin/": "drwxr-xr-x",
		program:      "-rwxr-xr-x",
		"usr/share/": "drwxr-xr-x", "usr/share/zoneinfo.zip": "-rw-r--r--",
	}
	got := make(map[string]string)
	for name, h := range u.headers {
		got[name] = h.FileInfo().Mode().String()
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "" || h.Gname != "" {
			t.Errorf("%s belongs to %d:%d (%s:%s), want 0:0", name, h.Uid, h.Gid, h.Uname, h.Gname)
		}
		if first := u.headers[u.order[0]].ModTime; !h.ModTime.Equal(first) {
			t.Errorf("%s is of %s, and others of %s", name, h.ModTime, first)
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("the files are\n%v, want\n%v", got, want)
	}
	if !slices.IsSorted(u.order) {
		t.Errorf("the files are not in order: %q", u.order)
	}
}

// checkELF makes sure that a binary is for a machine, and is static: it needs no loader.
func checkELF(t *testing.T, program, arch string) {
	t.Helper()
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[arch]; want != elf.EM_NONE &&
		f.Machine != want {
		t.Errorf("the binary is for %s, want %s", f.Machine, want)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("the binary has a segment %s, so it is not static", p.Type)
		}
	}
	if libraries, err := f.ImportedLibraries(); len(libraries) > 0 {
		t.Errorf("the binary needs %q (%v)", libraries, err)
	}
}

func labelsOf(t *testing.T, image v1.Image) map[string]string {
	t.Helper()
	c, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	return c.Config.Labels
}

// checkLabels compares labels with the binary, and annotations with labels.
func checkLabels(t *testing.T, index v1.ImageIndex, image v1.Image, program string) {
	t.Helper()
	labels := labelsOf(t, image)
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		labelTitle: "rondo", labelSource: "https://github.com/rondo-run/rondo", labelLicenses: "Apache-2.0",
		labelCreated:     "1970-01-01T00:00:00Z",
		labelDescription: "Durable execution over NATS JetStream and PostgreSQL, CockroachDB or SQLite",
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			want[labelRevision], want[labelVersion] = s.Value, info.Main.Version
		case "vcs.time":
			want[labelCreated] = s.Value
		}
	}
	if !maps.Equal(labels, want) {
		t.Errorf("the labels are\n%v, want\n%v", labels, want)
	}
	m, err := image.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	i, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(m.Annotations, labels) || !maps.Equal(i.Annotations, labels) {
		t.Errorf("the annotations are\n%v and\n%v, want\n%v", m.Annotations, i.Annotations, labels)
	}
}

// TestStockIsReproducible builds the image in two clones of this repository, with nothing in common
// but the commit.
func TestStockIsReproducible(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	root := filepath.Join("..", "..")
	if err := exec.Command("git", "-C", root, "rev-parse", "--verify", "-q", "HEAD").Run(); err != nil {
		t.Skip("this is no clone of the repository")
	}
	withCommits(t)
	source, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	var outputs []map[string]string
	var digests []string
	for _, where := range []string{"here", "somewhere/else"} {
		clone := filepath.Join(t.TempDir(), filepath.FromSlash(where))
		git(t, ".", "clone", "-q", source, clone)
		output := filepath.Join(clone, "result")
		said, problems := images(t, "-C", clone, "-output", output, "-platform", "linux/"+runtime.GOARCH)
		if problems != "" {
			t.Errorf("it complains: %s", problems)
		}
		digest, err := indexIn(t, output).Digest()
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(said, digest.String()) {
			t.Errorf("it says %q, and not the digest %s", said, digest)
		}
		if said, _ := images(t, "-C", clone, "-output", output, "-platform",
			"linux/"+runtime.GOARCH); !strings.Contains(said, digest.String()) {
			t.Errorf("the second image in the same place is another one: %s", said)
		}
		outputs, digests = append(outputs, contents(t, output)), append(digests, digest.String())
	}
	if digests[0] != digests[1] || !maps.Equal(outputs[0], outputs[1]) {
		t.Errorf("the digests are %q, and the files\n%q\n%q", digests, slices.Sorted(maps.Keys(outputs[0])),
			slices.Sorted(maps.Keys(outputs[1])))
	}
	for name, text := range outputs[0] {
		if strings.Contains(text, source) || strings.Contains(text, "somewhere/else") {
			t.Errorf("%s says where it was built", name)
		}
	}
}
