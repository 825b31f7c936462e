package fault

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

// stopped reports whether every thread of a process is stopped.
func stopped(pid int) (bool, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return false, err
	}
	for _, path := range threads {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		_, rest, _ := bytes.Cut(b[max(0, bytes.LastIndexByte(b, ')')):], []byte(" "))
		switch {
		case len(rest) == 0 || rest[0] == 'Z' || rest[0] == 'X':
			return false, fmt.Errorf("fault: process %d has ended", pid)
		case rest[0] != 'T':
			return false, nil
		}
	}
	if len(threads) == 0 {
		return false, fmt.Errorf("fault: process %d has ended", pid)
	}
	return true, nil
}
