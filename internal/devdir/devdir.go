// Package devdir reads and writes the file in the directory of the command dev that has the
// addresses of the running process, for commands that start later.
package devdir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// File is the name of the file. It exists while dev runs.
const File = "dev.json"

// ErrNotRunning reports a directory of dev without a running process.
var ErrNotRunning = errors.New("not running")

// Addresses are those of a running dev, as app.Addresses documents them.
type Addresses struct {
	NATS      string `json:"nats"`
	Prefix    string `json:"prefix"`
	Database  string `json:"database,omitempty"`
	Health    string `json:"health,omitempty"`
	JobQueues string `json:"job_queues,omitempty"`
}

// content is the content of the file.
type content struct {
	Addresses
	PID     int       `json:"pid"`
	Started time.Time `json:"started"`
}

// Write writes the addresses of this process. The function that it returns deletes the file.
func Write(dir string, at Addresses) (forget func(), err error) {
	path := filepath.Join(dir, File)
	data, err := json.MarshalIndent(content{at, os.Getpid(), time.Now().UTC()}, "", "  ")
	if err != nil {
		return nil, err
	}
	// By another name first, so that no reader sees half of it.
	if err := os.WriteFile(path+".new", append(data, '\n'), 0o600); err != nil {
		return nil, err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return nil, err
	}
	return func() { _ = os.Remove(path) }, nil // if it stays, its pid shows that the process has ended
}

// Read reads the addresses of the dev that runs in a directory. The error wraps [fs.ErrNotExist] if
// there is no such directory, and [ErrNotRunning] if the directory has no running dev.
func Read(dir string) (Addresses, error) {
	if _, err := os.Stat(dir); err != nil {
		return Addresses{}, fmt.Errorf("the dev of %s: %w", dir, err)
	}
	data, err := os.ReadFile(filepath.Join(dir, File))
	if errors.Is(err, fs.ErrNotExist) {
		return Addresses{}, fmt.Errorf("the dev of %s is %w", dir, ErrNotRunning)
	}
	if err != nil {
		return Addresses{}, fmt.Errorf("the dev of %s: %w", dir, err)
	}
	var c content
	if err := json.Unmarshal(data, &c); err != nil {
		return Addresses{}, fmt.Errorf("%s: %w", filepath.Join(dir, File), err)
	}
	if p, err := os.FindProcess(c.PID); err != nil || errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone) {
		return Addresses{}, fmt.Errorf("the dev of %s is %w: process %d has ended", dir, ErrNotRunning, c.PID)
	}
	return c.Addresses, nil
}
