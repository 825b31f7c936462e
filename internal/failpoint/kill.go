package failpoint

import (
	"os"
	"strconv"
	"strings"
	"sync"
)

// KillVariable is the environment variable that makes a process end itself: NAME:N, at the Nth
// time that it comes to the place NAME.
const KillVariable = "RINGCACHE_KILL_AT"

var order struct {
	once sync.Once
	mu   sync.Mutex
	name string
	left int
}

// Reach ends the process by SIGKILL if [KillVariable] says so.
func Reach(name string) {
	order.once.Do(func() {
		place, n, _ := strings.Cut(os.Getenv(KillVariable), ":")
		order.name = place
		order.left, _ = strconv.Atoi(n)
	})
	if order.name != name {
		return
	}
	order.mu.Lock()
	defer order.mu.Unlock()
	if order.left--; order.left == 0 {
		Die()
	}
}

// Die ends the process: not one instruction of it is executed any more.
func Die() {
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		_ = p.Kill()
	}
	select {}
}
