package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Peer returns the process that made a connection of a unix socket, and its user. The process can be watched
// if the kernel gave a pidfd of it, which all since 5.3 do for what they can see, and those since 6.5 for
// all. The error is ErrDead of a process that is gone already.
func Peer(conn syscall.Conn) (p *Process, user uint32, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, 0, fmt.Errorf("daemon: reading who is connected: %w", err)
	}
	var cred *unix.Ucred
	fd := -1
	var credErr, fdErr error
	err = raw.Control(func(socket uintptr) {
		if cred, credErr = unix.GetsockoptUcred(int(socket), unix.SOL_SOCKET, unix.SO_PEERCRED); credErr == nil {
			fd, fdErr = unix.GetsockoptInt(int(socket), unix.SOL_SOCKET, unix.SO_PEERPIDFD)
		}
	})
	if err = errors.Join(err, credErr); err != nil {
		return nil, 0, fmt.Errorf("daemon: reading who is connected: %w", err)
	}
	switch {
	case fdErr == nil:
		unix.CloseOnExec(fd)
		p, err = fromFD(fd, int(cred.Pid))
	case errors.Is(fdErr, unix.ESRCH): // it is gone, and nobody remembers it
		return nil, cred.Uid, ErrDead
	default: // the kernel is older
		p, err = open(int(cred.Pid))
	}
	return p, cred.Uid, err
}

// Open returns the process of an ID from an earlier time. The error is ErrDead if it has ended; another
// error if that can't be known, as in another PID namespace.
func Open(id ID) (*Process, error) {
	if !id.Known() {
		return nil, fmt.Errorf("daemon: process %v is not identified", id)
	}
	if own := namespace(); id.Namespace != 0 && own != id.Namespace {
		return nil, fmt.Errorf("daemon: process %d is one of PID namespace %d, and this is %d",
			id.PID, id.Namespace, own)
	}
	p, err := open(id.PID)
	if err != nil {
		return nil, err
	}
	switch {
	case p.fd == nil || !p.id.Known():
		p.Close()
		return nil, fmt.Errorf("daemon: process %d can't be watched, or /proc has nothing about it", id.PID)
	case p.id.Start != id.Start:
		p.Close()
		return nil, ErrDead // the number is another process's now
	}
	return p, nil
}

// open returns the process that has a number now. Without pidfds it can't be watched.
func open(pid int) (*Process, error) {
	if pid <= 0 {
		return Unknown(), nil
	}
	fd, err := unix.PidfdOpen(pid, 0)
	switch {
	case errors.Is(err, unix.ESRCH), errors.Is(err, unix.EINVAL): // or the number of a thread
		return nil, ErrDead
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM): // an old kernel, or a filter of system calls
		start, err := startOf(pid)
		if err != nil {
			return Unknown(), nil
		}
		return &Process{id: ID{PID: pid, Start: start, Namespace: namespace()}}, nil
	case err != nil:
		return nil, fmt.Errorf("daemon: opening process %d: %w", pid, err)
	}
	return fromFD(fd, pid)
}

// fromFD returns the process of a pidfd, which it takes over. Its number may be 0.
func fromFD(fd, pid int) (*Process, error) {
	if err := unix.SetNonblock(fd, true); err != nil { // so that the runtime polls it
		_ = unix.Close(fd)
		return nil, fmt.Errorf("daemon: preparing the pidfd of process %d: %w", pid, err)
	}
	p := &Process{inode: inodeOf(fd), fd: os.NewFile(uintptr(fd), "pidfd")}
	if pid > 0 {
		switch start, err := startOf(pid); {
		case err == nil:
			p.id = ID{PID: pid, Start: start, Namespace: namespace()}
		case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE): // it is known, and can't be read now
			p.Close()
			return nil, fmt.Errorf("daemon: identifying process %d: %w", pid, err)
		}
	}
	if exited(fd) { // otherwise what was read above is about this process
		p.Close()
		return nil, ErrDead
	}
	return p, nil
}

// inodeOf returns what identifies the process of a pidfd, on kernels whose pidfds have a file system of their
// own, from 6.9 on: before that, all have the same inode.
func inodeOf(fd int) uint64 {
	var fs unix.Statfs_t
	var st unix.Stat_t
	if unix.Fstatfs(fd, &fs) != nil || uint64(fs.Type) != pidfsMagic || unix.Fstat(fd, &st) != nil {
		return 0
	}
	return st.Ino
}

const pidfsMagic = 0x50494446

// exited reports whether the process of a pidfd is dead, or waits only for its parent to notice.
func exited(fd int) bool {
	for {
		polled := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(polled, 0)
		if !errors.Is(err, unix.EINTR) {
			return err == nil && n > 0 && polled[0].Revents&(unix.POLLIN|unix.POLLHUP) != 0
		}
	}
}

// wait returns true when the process is dead, and false when it is closed.
func (p *Process) wait() bool {
	raw, err := p.fd.SyscallConn()
	if err != nil {
		return false
	}
	return raw.Read(func(fd uintptr) bool { return exited(int(fd)) }) == nil
}

// startOf returns when the process with a number started: field 22 of its stat file. The name in field 2 may
// have any characters.
func startOf(pid int) (uint64, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 20 {
		return 0, fmt.Errorf("daemon: /proc/%d/stat has %d fields behind the name", pid, len(fields))
	}
	return strconv.ParseUint(string(fields[19]), 10, 64)
}

// namespace returns the inode of the PID namespace of this process, 0 if that is unknown.
func namespace() uint64 {
	var st unix.Stat_t
	if unix.Stat("/proc/self/ns/pid", &st) != nil {
		return 0
	}
	return st.Ino
}
