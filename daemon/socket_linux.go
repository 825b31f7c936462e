package daemon

import (
	"syscall"

	"golang.org/x/sys/unix"
)

const noFollow = unix.O_NOFOLLOW

// restrict gives a socket its mode before it has a name, so that there is no moment in which others may connect.
func restrict(c syscall.RawConn) error {
	var err error
	if outer := c.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) }); outer != nil {
		return outer
	}
	return err
}
