package engine

import (
	"syscall"

	"golang.org/x/sys/unix"
)

const canAwait = true

// awaitExit waits until a child has ended, and leaves it to be waited for: until
// then its number, which is that of its group, is nobody else's.
func awaitExit(pid int) {
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}

// ownGroup makes the process the leader of a process group of its own.
func ownGroup(a *syscall.SysProcAttr) { a.Setpgid = true }

// killGroup kills every process of a group, whose number is that of its leader.
func killGroup(leader int) { _ = syscall.Kill(-leader, syscall.SIGKILL) }
