//go:build !unix

package pgtest

import (
	"errors"
	"syscall"
)

const supported = false

const (
	stopSignal = syscall.SIGKILL
	killSignal = syscall.SIGKILL
)

type account struct {
	name     string
	uid, gid int
}

func serverUser() (*account, error) { return nil, nil }

func keeperAttributes(*account) *syscall.SysProcAttr { return nil }

func signal(int, syscall.Signal) error { return errors.ErrUnsupported }
