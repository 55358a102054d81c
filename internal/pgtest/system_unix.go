//go:build unix

package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// supported is false where there are no users and signals as PostgreSQL has them on Unix.
const supported = true

const (
	stopSignal = syscall.SIGSTOP
	killSignal = syscall.SIGKILL
)

// account is a user of this machine.
type account struct {
	name     string
	uid, gid int
}

// serverUser is the user that has to run PostgreSQL, because it refuses to run as root; nil if this
// process can run it itself.
func serverUser() (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.Atoi(u.Uid)
		gid, err2 := strconv.Atoi(u.Gid)
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("user %s: %w", name, err)
		}
		return &account{name: name, uid: uid, gid: gid}, nil
	}
	return nil, errors.New("PostgreSQL does not run as root, and there is neither a user postgres nor a user nobody " +
		"to run it: run the tests as another user")
}

func keeperAttributes(u *account) *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setsid: true}
	if u != nil {
		a.Credential = &syscall.Credential{Uid: uint32(u.uid), Gid: uint32(u.gid)}
	}
	return a
}

func signal(pid int, s syscall.Signal) error { return syscall.Kill(pid, s) }
