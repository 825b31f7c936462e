package s3test

import (
	"os/exec"
	"syscall"
)

// endWithParent makes the kernel end the process with the test, even if that is killed.
func endWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
