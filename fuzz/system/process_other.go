//go:build !unix

package system

import (
	"os"
	"syscall"
)

func ownTree() *syscall.SysProcAttr { return nil }

func killTree(p *os.Process) error { return p.Kill() }
