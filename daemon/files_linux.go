package daemon

import (
	"math"

	"golang.org/x/sys/unix"
)

// openFiles returns how many descriptors this process may have; 0 is unknown. The runtime has raised the soft
// limit to the hard one.
func openFiles() int {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return int(min(limit.Cur, math.MaxInt32))
}
