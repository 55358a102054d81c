package pgtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// This file lets all processes of a run share a server.

// SharedVariable is the environment variable with the directory of the server that the processes of
// a run share. [Share] says what to set it to.
const SharedVariable = "RONDO_TEST_PG_SHARED"

// initializedDir is a copy of the shared server's data as initdb has left it. Private servers of
// the run begin with it: copying takes a tenth of the time of initdb.
const initializedDir = "initialized"

// sharedFile says how to connect to the shared server. Only the user of the tests may read it.
const sharedFile = "shared.json"

// shared is the contents of that file.
type shared struct {
	Bin, Password string
	Port          int

	dir string
}

func (s *shared) data() string { return filepath.Join(s.dir, initializedDir) }

// Share starts a server for all processes that run with [SharedVariable] set to dir: in them,
// [Database] and [Template] use it for tests, and [Start] copies its initialized data. It ends with
// Close, or with this process, however that ends. It does not wait for the disk.
func Share() (c *Cluster, dir string, err error) {
	o := options{share: true}
	Setting("full_page_writes", "off")(&o)
	// It would run at times of its own, and most databases live shorter than its interval.
	Setting("autovacuum", "off")(&o)
	s, err := startServer(o)
	if err != nil {
		return nil, "", err
	}
	c = &Cluster{s}
	data, err := json.Marshal(shared{Bin: s.bin, Password: s.password, Port: s.port})
	if err == nil {
		err = os.WriteFile(filepath.Join(s.dir, sharedFile), data, 0o600)
	}
	if err != nil {
		return nil, "", errors.Join(fmt.Errorf("pgtest: %w", err), c.Close())
	}
	return c, s.dir, nil
}

// readShared reads how to connect to the server in a directory.
func readShared(dir string) (*shared, error) {
	data, err := os.ReadFile(filepath.Join(dir, sharedFile))
	if err != nil {
		return nil, err
	}
	s := &shared{dir: dir}
	return s, json.Unmarshal(data, s)
}

// join gives the server that another process has started for this run.
func join(dir string) (*server, error) {
	shared, err := readShared(dir)
	if err != nil {
		return nil, fmt.Errorf("pgtest: no PostgreSQL server is at %s=%s: %w", SharedVariable, dir, err)
	}
	return &server{bin: shared.Bin, dir: dir, password: shared.Password, port: shared.Port}, nil
}

// readyMade says whether this run has data that the binaries in a directory have initialized.
func readyMade(bin string) (*shared, bool) {
	dir := os.Getenv(SharedVariable)
	if dir == "" {
		return nil, false
	}
	s, err := readShared(dir)
	return s, err == nil && s.Bin == bin
}
