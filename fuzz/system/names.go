package system

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/ringcache/ringcache/fuzz"
	"github.com/ringcache/ringcache/internal/shmfile"
)

// uniquePrefix is the beginning of names in shared memory that no other process uses.
func uniquePrefix() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return fmt.Sprintf("ringcache_fuzz_%d_%s_", os.Getpid(), hex.EncodeToString(b[:]))
}

// removeSegments removes segments, sidecars and semaphores whose names begin with a prefix.
func removeSegments(prefix string) error {
	var errs []error
	for _, pattern := range []string{prefix + "*", "sem." + prefix + "*"} {
		files, err := filepath.Glob(filepath.Join(shmfile.DefaultDir, pattern))
		errs = append(errs, err)
		for _, f := range files {
			if err := os.Remove(f); !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// withNames returns a system with names of its own in shared memory: two systems that are given
// the same operations do not meet, and neither do two processes that run the same sequence. A
// store that is created without a name gets one, so that replies do not contain random names. Where
// an operation names a Python semaphore, there is one. Close closes the system and removes what is
// left.
func withNames(s fuzz.System) fuzz.System {
	return &named{System: s, prefix: uniquePrefix(), semaphores: map[string]bool{}}
}

type named struct {
	fuzz.System
	prefix     string
	semaphores map[string]bool
}

func (n *named) Do(ops []fuzz.Op) ([]fuzz.Reply, error) {
	out := make([]fuzz.Op, len(ops))
	for i, op := range ops {
		var err error
		if out[i], err = n.rename(op); err != nil {
			return nil, err
		}
	}
	replies, err := n.System.Do(out)
	for _, r := range replies {
		if name, ok := r.Fields["name"].(string); ok {
			r.Fields["name"] = strings.TrimPrefix(name, n.prefix)
		}
	}
	return replies, err
}

func (n *named) rename(op fuzz.Op) (fuzz.Op, error) {
	switch op.Name {
	case "store.create", "store.open", "store.adopt", "ring.new":
	default:
		return op, nil
	}
	name, there := op.Args["name"].(string)
	if !there && op.Name == "store.create" && op.Args["name"] == nil {
		name, there = op.Args["store"].(string)
	}
	lock, locked := op.Args["lock"].(string)
	if !there && !locked {
		return op, nil
	}
	op.Args = maps.Clone(op.Args)
	if there {
		op.Args["name"] = n.prefix + name
	}
	if locked {
		lock = strings.TrimPrefix(lock, "/")
		op.Args["lock"] = "/" + n.prefix + lock
		return op, n.makeSemaphore(lock)
	}
	return op, nil
}

// makeSemaphore makes an unlocked semaphore as Python's multiprocessing has it: the file of one of
// glibc's, of 64 bits.
func (n *named) makeSemaphore(name string) error {
	if n.semaphores[name] {
		return nil
	}
	n.semaphores[name] = true
	var b [32]byte
	binary.LittleEndian.PutUint32(b[:], 1) // the value
	b[8] = 0x80                            // shared between processes
	return os.WriteFile(filepath.Join(shmfile.DefaultDir, "sem."+n.prefix+name), b[:], 0o600)
}

func (n *named) Close() error { return errors.Join(n.System.Close(), removeSegments(n.prefix)) }
