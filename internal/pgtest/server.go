package pgtest

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	random "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	host      = "127.0.0.1"
	superuser = "postgres"
	// pidFile is the file that a running server keeps in its data directory. A killed one leaves it
	// there.
	pidFile = "postmaster.pid"
	// maxConnections is enough for all packages that go test runs at the same time.
	maxConnections = "500"
)

// keeper is the script of the process that owns a server: it initializes, starts and stops it, each
// when this process tells it to in a line of its standard input, and answers with the exit code.
// When the input ends, it stops the server and removes everything.
//
// That is what makes servers end with the tests, however these end: the kernel closes the pipe when
// this process returns, panics, runs into the timeout of go test, or gets a SIGKILL. A parent-death
// signal (PR_SET_PDEATHSIG) would need Linux, is sent when the thread ends that started the server,
// which in Go is any thread, and would leave the data behind. As the keeper does one thing after
// the other, it cannot overlook a server that was just being started. It is the leader of a session
// of its own, so that Ctrl-C in a terminal ends the tests and not their keeper.
//
// A server that was killed leaves a segment of shared memory, which only its next start frees, and
// of which systems have few. So it is started once more.
const keeper = `
trap '' PIPE
while read -r line; do
	eval "$line" >>log 2>&1 </dev/null
	echo $?
done
exec >>log 2>&1
if [ -e killed ]; then "$1/pg_ctl" start -w -D data -l log; fi
"$1/pg_ctl" stop -w -D data -m immediate
dir=$PWD
cd / && rm -rf "$dir"
`

// allocator has the GNU C library keep the memory that a session frees. PostgreSQL frees most of it
// after each statement. The library would return it to the kernel, and the next statement would
// fault each page in again: a twelfth of the server's CPU time. Other libraries ignore it.
var allocator = []string{
	"MALLOC_TOP_PAD_=4194304", "MALLOC_TRIM_THRESHOLD_=67108864", "MALLOC_MMAP_THRESHOLD_=67108864",
}

// server is a PostgreSQL server, its data and its keeper.
type server struct {
	bin, dir string
	password string
	port     int

	mu     sync.Mutex // held while the server is started or killed, and over a command to the keeper and its answer
	killed bool
	keeper *exec.Cmd // nil if another process started the server
	in     io.WriteCloser
	out    *bufio.Reader

	// admin executes statements about databases. One is kept: to connect takes longer than they do.
	admin struct {
		sync.Mutex
		conn *pgx.Conn
	}
	templates templates
}

func startServer(o options) (*server, error) {
	s, err := newServer(o)
	if err != nil {
		return nil, fmt.Errorf("pgtest: %w", err)
	}
	err = s.initialize()
	if err == nil && o.share {
		err = s.keep("cp", "-R", "data", initializedDir)
	}
	if err == nil {
		err = s.setUp(o)
	}
	if err == nil {
		err = s.startFirst()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("pgtest: starting PostgreSQL from %s: %w", s.bin, err), s.end())
	}
	return s, nil
}

// newServer makes the directory, and starts the keeper in it.
func newServer(o options) (*server, error) {
	bin, err := Found()
	if err != nil {
		return nil, err
	}
	user, err := serverUser()
	if err != nil {
		return nil, err
	}
	dir, err := makeDir(user)
	if err != nil {
		return nil, err
	}
	s := &server{bin: bin, dir: dir, password: rand.Text()}
	s.keeper = exec.Command("/bin/sh", "-c", keeper, "keeper", bin)
	s.keeper.Dir = dir
	// The rest of the environment could have PG… variables in it, which PostgreSQL's programs
	// listen to.
	s.keeper.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "LC_ALL=C", "TZ=UTC"}
	if !o.fsync { // benchmarks measure the allocator of production
		s.keeper.Env = append(s.keeper.Env, allocator...)
	}
	// Its error output goes nowhere: go test waits for all processes that can write to where the
	// tests write.
	s.keeper.SysProcAttr = keeperAttributes(user)
	in, err1 := s.keeper.StdinPipe()
	out, err2 := s.keeper.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := s.keeper.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s.in, s.out = in, bufio.NewReader(out)
	return s, nil
}

// makeDir makes a directory that belongs to the user, below one that he can get to: the temporary
// directory of root can be closed to all others.
func makeDir(user *account) (string, error) {
	parent := ""
	for _, p := range []string{os.TempDir(), "/tmp", "/var/tmp"} {
		if user == nil || open(p) {
			parent = p
			break
		}
	}
	if parent == "" {
		return "", fmt.Errorf("user %s, who has to run PostgreSQL because root may not, can get to none of the "+
			"temporary directories", user.name)
	}
	dir, err := os.MkdirTemp(parent, "rondo-pgtest-")
	if err != nil {
		return "", err
	}
	if user != nil {
		err = os.Chown(dir, user.uid, user.gid)
	}
	return dir, err
}

// open reports whether all users can reach a directory.
func open(dir string) bool {
	for {
		info, err := os.Stat(dir)
		if err != nil || info.Mode()&0o001 == 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
		dir = filepath.Dir(dir)
	}
}

// initialize creates the data, or copies what [Share] has initialized. Every client has to know the
// password, so that tests notice code that loses it.
func (s *server) initialize() error {
	if ready, ok := readyMade(s.bin); ok {
		s.password = ready.Password
		return s.keep("cp", "-R", ready.data(), "data")
	}
	// A directory of the server's user, in which root can write as well.
	if err := s.keep("mkdir", "secret"); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(s.dir, "secret", "password"), []byte(s.password+"\n"), 0o644); err != nil {
		return err
	}
	// The data is not worth waiting for the disk: if the machine dies now, so do the tests.
	err := s.keep(filepath.Join(s.bin, "initdb"), "-D", "data", "-U", superuser, "--auth=scram-sha-256",
		"--pwfile=secret/password",
		"--encoding=UTF8", "--locale=C", "--no-sync")
	if err != nil {
		return err
	}
	return s.keep("rm", "-r", "secret")
}

// setUp writes the settings of a server whose data is initialized.
func (s *server) setUp(o options) error {
	if o.archived {
		if err := s.archive(); err != nil {
			return err
		}
	}
	return errors.Join(
		s.configure("listen_addresses", host),
		// paths of sockets are limited to some 100 bytes, temporary directories are not
		s.configure("unix_socket_directories", ""),
		s.configure("max_connections", maxConnections),
		s.configure("fsync", strconv.FormatBool(o.fsync)),
		s.configure(o.settings...),
	)
}

// configure changes settings for the next start: names and values by turns.
func (s *server) configure(settings ...string) error {
	f, err := os.OpenFile(filepath.Join(s.dir, "data", "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	for pair := range slices.Chunk(settings, 2) {
		_, err2 := fmt.Fprintf(f, "%s = '%s'\n", pair[0], strings.ReplaceAll(pair[1], "'", "''"))
		err = errors.Join(err, err2)
	}
	return errors.Join(err, f.Close())
}

// startFirst starts the server for the first time, on a free port. Another process can take the
// port between the check and the start, so startFirst tries more than once.
//
// The ports are below those that systems give to outgoing connections: one of these could take the
// port while the server is down.
func (s *server) startFirst() error {
	for attempt := 1; ; attempt++ {
		s.port = 15000 + random.IntN(15000)
		l, err := net.Listen("tcp", s.addr())
		if err == nil {
			err = l.Close()
		}
		if err == nil {
			err = errors.Join(s.configure("port", strconv.Itoa(s.port)), s.start())
		}
		if err == nil || attempt == 20 {
			return err
		}
		if !errors.Is(err, syscall.EADDRINUSE) && !strings.Contains(err.Error(), "could not bind") {
			return err
		}
	}
}

func (s *server) start() error {
	return s.keep(filepath.Join(s.bin, "pg_ctl"), "start", "-w", "-D", "data", "-l", "log")
}

// keep makes the keeper execute a command in the server's directory, as the server's user.
func (s *server) keep(words ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	line := strings.Join(quoted, " ")
	_, err := io.WriteString(s.in, line+"\n")
	answer := ""
	if err == nil {
		answer, err = s.out.ReadString('\n')
	}
	switch {
	case err != nil:
		return fmt.Errorf("the process that keeps PostgreSQL is gone: %s: %w", line, err)
	case answer != "0\n":
		return fmt.Errorf("%s: exit code %s; the end of its log:\n%s", line, strings.TrimSpace(answer), s.logTail())
	}
	return nil
}

// logTail gives the last lines of the output of the server and the programs around it.
func (s *server) logTail() string {
	data, err := os.ReadFile(filepath.Join(s.dir, "log"))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return "\t" + strings.Join(lines[max(0, len(lines)-20):], "\n\t")
}

// running reports whether the server was not killed. It does not notice when the server dies by
// itself.
func (s *server) running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.killed
}

func (s *server) kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.killed {
		return nil
	}
	if err := s.killAll(); err != nil {
		return fmt.Errorf("pgtest: killing PostgreSQL: %w", err)
	}
	s.killed = true
	return nil
}

// stop ends the server at once, in the way that PostgreSQL has for that.
func (s *server) stop() error {
	if !s.running() {
		return nil
	}
	if err := s.keep(filepath.Join(s.bin, "pg_ctl"), "stop", "-w", "-D", "data", "-m", "immediate"); err != nil {
		return fmt.Errorf("pgtest: stopping PostgreSQL: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.killed = true
	return nil
}

// killAll sends SIGKILL to all processes of the server. Its first process starts the others, so it
// is stopped before they are counted; if only that one were killed, the others would notice, and
// notify their clients before they end.
func (s *server) killAll() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	pids := filepath.Join(s.dir, "data", pidFile)
	first, err := (&Cluster{s}).PID()
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, s.dsn("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if err := signal(first, stopSignal); err != nil {
		return err
	}
	rows, _ := conn.Query(ctx, "SELECT pid FROM pg_stat_activity") // the error is also that of the rows
	others, err := pgx.CollectRows(rows, pgx.RowTo[int])
	for _, pid := range others {
		_ = signal(pid, killSignal) // it may have ended by itself
	}
	if err := errors.Join(err, signal(first, killSignal)); err != nil {
		return err
	}
	for !refused(s.addr()) {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("process %d was killed, but still takes connections: %w", first, err)
		}
		time.Sleep(time.Millisecond)
	}
	// The next start would look for the process that this file names. In a container whose first
	// process does not collect those that died it would find it, and refuse.
	return os.Rename(pids, filepath.Join(s.dir, "killed"))
}

// refused reports whether the port of an address has no listener.
func refused(addr string) bool {
	conn, err := net.Dial("tcp", addr)
	if err == nil {
		_ = conn.Close() // nothing was written to it
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// restart starts the server after it was killed. Processes that were killed can take a moment to
// die, and PostgreSQL does not start as long as one of them has its memory, so it tries until it
// can.
func (s *server) restart() error {
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		err := s.start()
		if err == nil {
			break
		}
		if time.Since(began) > patience || !strings.Contains(err.Error(), "still in use") {
			return fmt.Errorf("pgtest: starting PostgreSQL again: %w", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.killed = false
	if err := os.Remove(filepath.Join(s.dir, "killed")); err != nil && !errors.Is(err, os.ErrNotExist) {
		// it is not there if the server was stopped
		return fmt.Errorf("pgtest: starting PostgreSQL again: %w", err)
	}
	return nil
}

// end stops the server and removes its data: the keeper does both when its input ends.
func (s *server) end() error {
	s.admin.Lock()
	if s.admin.conn != nil {
		_ = s.admin.conn.Close(context.Background()) // the server may be dead
		s.admin.conn = nil
	}
	s.admin.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.killed = true
	if err := errors.Join(s.in.Close(), s.keeper.Wait()); err != nil {
		return fmt.Errorf("pgtest: stopping PostgreSQL: %w", err)
	}
	return nil
}
