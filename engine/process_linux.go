package engine

import "golang.org/x/sys/unix"

const canAwait = true

// awaitExit waits until a child has ended, and leaves it to be waited for: until
// then its number, which is that of its group, is nobody else's.
func awaitExit(pid int) {
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}
