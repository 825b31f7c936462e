package shmfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// EnginesSuffix is what a file has behind the name of a segment in which the daemon keeps what it knows of
// LMCache's engines.
const EnginesSuffix = ".lmcache"

// EnginesNew is what the name of that file has behind it while the daemon writes the next one.
const EnginesNew = ".new"

// RemoveEngines removes that file of the segment at path, if there is one, and the next one that a kill has
// left. A file of such a name that is something else, such as a segment of its own, is left alone: the
// daemon's is JSON.
func RemoveEngines(path string) error {
	return errors.Join(removeJSON(path+EnginesSuffix), removeJSON(path+EnginesSuffix+EnginesNew))
}

func removeJSON(path string) error {
	f, _, err := Open(path, false)
	if err != nil {
		return nil //nolint:nilerr // there is none, or it is a folder, a link or another user's
	}
	var first [1]byte
	n, _ := f.ReadAt(first[:], 0) // an empty file is one of a daemon that was killed
	if err := f.Close(); err != nil || n == 1 && first[0] != '{' {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the file of LMCache's engines beside a segment: %w", err)
	}
	return nil
}
