package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// usage is what a process takes, in bytes.
type usage struct{ private, shared int64 }

// thisProcess reads what this process has in memory: its own pages, and pages of shared memory that it has mapped.
func thisProcess() (u usage, err error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return u, err
	}
	found := 0
	for line := range strings.Lines(string(text)) {
		var n int64
		for name, to := range map[string]*int64{"RssAnon:": &u.private, "RssShmem:": &u.shared} {
			if _, err := fmt.Sscanf(line, name+" %d kB", &n); err == nil {
				*to = n * kib
				found++
			}
		}
	}
	if found != 2 {
		return u, fmt.Errorf("/proc/self/status has %d of two lines", found)
	}
	return u, nil
}

func descriptors() (int, error) {
	all, err := os.ReadDir("/proc/self/fd")
	return len(all) - 1, err // one of them is the folder itself
}

// taken returns the bytes that files take, by a pattern of their paths.
func taken(pattern string) (sum int64, err error) {
	paths, err := filepath.Glob(pattern)
	for _, p := range paths {
		if info, err := os.Stat(p); err == nil {
			sum += blocks(info)
		}
	}
	return sum, err
}

// takenBelow returns the bytes that the files below a folder take. Files may come and go meanwhile.
func takenBelow(folder string) (sum int64, err error) {
	err = filepath.WalkDir(folder, func(_ string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			sum += blocks(info)
		}
		return err
	})
	return sum, err
}
