//go:build unix

package system

import (
	"errors"
	"os"
	"syscall"
)

// ownTree returns the attributes of a process whose children end with it in killTree, such as the
// programs of a shell's pipeline.
func ownTree() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// killTree kills a process and its children. The process must not have been waited for.
func killTree(p *os.Process) error {
	err := syscall.Kill(-p.Pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}
