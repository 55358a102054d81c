package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// orders is a user's program: it uses a module that stands in a directory, and prints what it finds
// in the image.
var orders = map[string]string{
	".gitignore": "/elsewhere/\n",
	"go.mod": "module example.com/orders\n\ngo 1.26.0\n\nrequire example.com/places v1.2.3\n\nreplace " +
		"example.com/places => ./places\n",
	"places/a.go": "// Package places knows a place.\npackage places\n\n// Zone is where it is.\nconst Zone = " +
		"\"Europe/Berlin\"\n",
	"places/go.mod":    "module example.com/places\n\ngo 1.26.0\n",
	"prices/prices.go": "// Package prices is no program.\npackage prices\n",
	"cmd/Orders/main.go": `// Command Orders tells what it finds.
package main

import (
	"crypto/x509"
	"encoding/json"
	"os"
	"os/user"
	"time"

	"example.com/places"
)

func main() {
	found := make(map[string]any)
	say := func(what string, value any, err error) {
		if err != nil {
			value = "error: " + err.Error()
		}
		found[what] = value
	}
	berlin, err := time.LoadLocation(places.Zone)
	if err == nil {
		say("berlin", time.Date(2026, 7, 1, 0, 0, 0, 0, berlin).Format("-07:00"), nil)
	} else {
		say("berlin", "", err)
	}
	roots, err := x509.SystemCertPool()
	say("roots", err == nil && !roots.Equal(x509.NewCertPool()), err)
	f, err := os.CreateTemp("", "")
	say("temporary", f != nil, err)
	me, err := user.Current()
	if err == nil {
		say("user", me.Username+" "+me.Uid+" "+me.Gid+" "+me.HomeDir, nil)
	} else {
		say("user", "", err)
	}
	dir, err := os.Getwd()
	say("directory", dir, err)
	_, err = os.Create("/usr/local/bin/other")
	say("may write", err == nil, nil)
	json.NewEncoder(os.Stdout).Encode(found)
}
`,
}

// repository writes the files of a program into a directory and commits them, the same commit
// wherever that is.
func repository(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		name = filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	git(t, dir, "init", "-q", "-b", "main")
	git(t, dir, "add", ".")
	git(t, dir, "commit", "-q", "-m", "orders")
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	const moment = "2026-03-01T10:00:00+01:00"
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a",
		"GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a",
		"GIT_COMMITTER_EMAIL=a@example.com", "GIT_AUTHOR_DATE="+moment, "GIT_COMMITTER_DATE="+moment)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// withCommits lets Go write the commit into programs, whatever else it was told on this machine,
// and takes the time from there.
func withCommits(t *testing.T) {
	t.Helper()
	t.Setenv("GOFLAGS", "-buildvcs=auto")
	t.Setenv("SOURCE_DATE_EPOCH", "")
}

// images runs the command, and gives what it says.
func images(t *testing.T, args ...string) (out, problems string) {
	t.Helper()
	var o, p bytes.Buffer
	if err := run(t.Context(), args, &o, &p); err != nil {
		t.Fatalf("images %q: %v\n%s", args, err, p.String())
	}
	return o.String(), p.String()
}

// indexIn reads the images from a layout: the one that has a name.
func indexIn(t *testing.T, dir string) v1.ImageIndex {
	t.Helper()
	l, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	m, err := l.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var found v1.ImageIndex
	for _, d := range m.Manifests {
		if d.Annotations[labelRef] == "" {
			continue
		}
		if found != nil {
			t.Fatal("more than one image has a name")
		}
		if found, err = l.ImageIndex(d.Digest); err != nil {
			t.Fatal(err)
		}
	}
	if found == nil {
		t.Fatal("no image has a name")
	}
	return found
}

// imageFor finds the image for an architecture.
func imageFor(t *testing.T, index v1.ImageIndex, arch string) v1.Image {
	t.Helper()
	m, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range m.Manifests {
		if d.Platform != nil && d.Platform.OS == "linux" && d.Platform.Architecture == arch {
			image, err := index.Image(d.Digest)
			if err != nil {
				t.Fatal(err)
			}
			return image
		}
	}
	t.Fatalf("there is no image for %s", arch)
	return nil
}

// unpacked is the layer of an image: what its files are like, and a directory that has them.
type unpacked struct {
	dir     string
	headers map[string]*tar.Header
	order   []string
}

func unpack(t *testing.T, image v1.Image) unpacked {
	t.Helper()
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	if len(layers) != 1 {
		t.Fatalf("the image has %d layers, want one", len(layers))
	}
	r, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	u := unpacked{dir: t.TempDir(), headers: make(map[string]*tar.Header)}
	for files := tar.NewReader(r); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return u
		} else if err != nil {
			t.Fatal(err)
		}
		u.headers[h.Name] = h
		u.order = append(u.order, h.Name)
		name := filepath.Join(u.dir, filepath.FromSlash(h.Name))
		if h.Typeflag == tar.TypeDir {
			err = os.Mkdir(name, 0o755)
		} else {
			err = writeFrom(name, files)
		}
		if err == nil {
			err = os.Chmod(name, h.FileInfo().Mode())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func writeFrom(name string, r io.Reader) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}

// contents reads a directory with all that is below it.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		key, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		key += " " + info.Mode().String()
		if !d.IsDir() {
			text, err := os.ReadFile(name)
			all[key] = string(text)
			return err
		}
		all[key] = ""
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func mustRead(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
