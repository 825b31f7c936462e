//go:build !linux

package process

import (
	"errors"
	"fmt"
	"syscall"
)

// Peer is for Linux only.
func Peer(syscall.Conn) (*Process, uint32, error) {
	return nil, 0, fmt.Errorf("daemon: who is connected is known on Linux only: %w", errors.ErrUnsupported)
}

// Open is for Linux only.
func Open(ID) (*Process, error) {
	return nil, fmt.Errorf("daemon: processes are identified on Linux only: %w", errors.ErrUnsupported)
}

func (p *Process) wait() bool { return false }
