package inspect

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/internal/sidecar"
)

// vllmPrefix is what the names of vLLM's segments begin with, unless an operator has chosen others
// (envs.py, 0.11.0 to 0.33.0).
const vllmPrefix = "VLLM_OBJECT_STORAGE_SHM_BUFFER"

// List describes the segments of a directory, in the order of their names: those with a sidecar, and files
// that are rings by their name or their content. Files that are neither are left out. Files of another user
// that have the name of a segment are there as [Denied].
func List(o Options) ([]Summary, error) {
	dir := cmp.Or(o.Dir, shmfile.DefaultDir)
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	var names []string
	all := map[string]bool{}
	for _, f := range files {
		all[f.Name()] = true
	}
	for _, f := range files {
		name, ours := strings.CutSuffix(f.Name(), sidecar.Suffix)
		switch {
		case ours && name != "":
			names = append(names, name)
		case all[name+sidecar.Suffix], isBeside(name, all), !f.Type().IsRegular(): // a link is no segment
		default:
			names = append(names, name)
		}
	}
	slices.Sort(names)
	opened := openFiles(dir)
	out := []Summary{}
	for _, name := range names {
		s, err := look(name, o, opened)
		named := all[name+sidecar.Suffix] || strings.HasPrefix(name, vllmPrefix)
		switch {
		case errors.Is(err, fs.ErrNotExist): // it went
		case err == nil && (s.Policy != policyForeign || s.Objects > 0 || named):
			out = append(out, s)
		case err != nil && named:
			out = append(out, denied(dir, name, err))
		}
	}
	return out, nil
}

// look describes one segment.
func look(name string, o Options, opened func(dev, ino uint64) []int) (s Summary, err error) {
	x, err := Open(name, o)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	return x.describe(opened)
}

// isBeside reports whether a file is one that lies beside a segment.
func isBeside(name string, all map[string]bool) bool {
	segment, ok := shmfile.BesideOf(name)
	return ok && (all[segment] || all[segment+sidecar.Suffix])
}

// denied describes a file that can't be read.
func denied(dir, name string, err error) Summary {
	s := unknown(name)
	s.State, s.Problem = Denied, err.Error()
	if st, statErr := os.Lstat(filepath.Join(dir, name)); statErr == nil {
		s.Bytes, s.Size, s.Made = st.Size(), st.Size(), st.ModTime()
		s.UID = uidOf(st)
	}
	return s
}

// unknown is a summary of which nothing is known but the name.
func unknown(name string) Summary {
	return Summary{
		Name: name, UID: -1, Size: -1, Used: -1, Bytes: -1, DataOffset: -1, Objects: -1, MaxObjects: -1, InUse: -1,
		Damaged: -1, Readers: -1, DeadReaders: -1, ReaderSlots: -1, Leases: -1, NextID: -1,
	}
}
