package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// The jobs encoder-save and encoder-load keep the output of an encoder, which is bytes by key, and bring it
// back into memory of the caller that was written to before. A level or connector has room for outputsKept;
// the loads take so many in turn.

// outputsKept is also in peer/encoder_jobs.py.
const outputsKept = 8

// outputColumns are those of Gemma 3 27B, in bfloat16; an image has 256 rows. The large output has some 34
// MiB.
const outputColumns = 5376

var outputSizes = []int{256 * outputColumns * 2, 3315 * outputColumns * 2}

func outputs(job string) func(options) []Case {
	return func(o options) (cases []Case) {
		for _, size := range outputSizes {
			cases = append(cases, Case{Job: job, Size: size})
			if o.Smoke {
				break
			}
		}
		return cases
	}
}

// connector is one of vLLM's. Files are in a folder that is removed at the end.
func connector(peer, kind string, folder func(*environment) string) maker {
	return maker{make: func(e *environment) Job {
		more := map[string]any{"connector": kind}
		if folder != nil {
			more["folder"] = folder(e)
		}
		return &remote{peer: peer, env: e, purpose: "encoder", more: more}
	}}
}

// onDisk is the folder whose file system is measured, inMemory one without a medium.
func onDisk(e *environment) string {
	folder := e.options.Disk
	if folder == "" {
		folder = os.TempDir()
	}
	e.versions["file system"] = fileSystem(folder)
	return folder
}

func inMemory(*environment) string { return "/dev/shm" }

func fileSystem(folder string) string {
	var s unix.Statfs_t
	if err := unix.Statfs(folder, &s); err != nil {
		return err.Error()
	}
	switch s.Type {
	case unix.EXT4_SUPER_MAGIC:
		return "ext4"
	case unix.XFS_SUPER_MAGIC:
		return "xfs"
	case unix.BTRFS_SUPER_MAGIC:
		return "btrfs"
	case unix.OVERLAYFS_SUPER_MAGIC:
		return "overlayfs"
	case unix.TMPFS_MAGIC:
		return "tmpfs"
	}
	return fmt.Sprintf("%#x", s.Type)
}

// outputStore saves and loads. What is loaded is one of the first outputsKept that were saved, or the last.
type outputStore interface {
	open(env *environment, size int) error
	save(key string, output []byte) error
	load(key string, into []byte) error
	// remove removes what is too old, outside of the clock, if saving has not.
	remove(key string) error
	Close() error
}

// outputJob is a job over such a store.
type outputJob struct {
	peer   string
	env    *environment
	store  outputStore
	saving bool

	output, into []byte
	keys         []string
	made, at     int
}

func outputsOf(peer string, store func() outputStore) maker {
	return maker{make: func(e *environment) Job { return &outputJob{peer: peer, env: e, store: store()} }}
}

func (j *outputJob) Peer() string { return j.peer }

func (j *outputJob) Prepare(c Case) error {
	j.saving = c.Job == "encoder-save"
	j.output, j.into = make([]byte, c.Size), make([]byte, c.Size)
	_, _ = rand.Read(j.output) // never fails
	if err := j.store.open(j.env, c.Size); err != nil {
		return err
	}
	first := outputsKept
	if j.saving {
		first *= 2 // until something has to go for each
	}
	for range first {
		if err := errors.Join(j.save(), j.verify(), j.settle()); err != nil {
			return err
		}
	}
	return nil
}

// verify loads what was saved last.
func (j *outputJob) verify() error {
	clear(j.into)
	if err := j.store.load(j.keys[len(j.keys)-1], j.into); err != nil {
		return err
	}
	if !bytes.Equal(j.into, j.output) {
		return fmt.Errorf("%s does not return what was saved", j.peer)
	}
	return nil
}

func (j *outputJob) Run(n int) ([]float64, error) {
	if j.saving {
		return timedEach(n, j.save, j.settle)
	}
	return timedEach(n, j.load, j.settle)
}

func (j *outputJob) save() error {
	j.made++
	key := keyOf(j.made)
	j.keys = append(j.keys, key)
	return j.store.save(key, j.output)
}

func (j *outputJob) load() error {
	j.at++
	return j.store.load(j.keys[j.at%len(j.keys)], j.into)
}

func (j *outputJob) settle() error {
	if len(j.keys) <= outputsKept {
		return nil
	}
	key := j.keys[0]
	j.keys = j.keys[1:]
	return j.store.remove(key)
}

func (j *outputJob) Close() error { return j.store.Close() }

// copies is the least that a store in memory does: one copy by one thread, between pages that were written
// to.
type copies struct {
	places [outputsKept][]byte
	at     map[string]int
	next   int
}

func bareOutputs() outputStore { return &copies{at: map[string]int{}} }

func (c *copies) open(_ *environment, size int) error {
	for i := range c.places {
		c.places[i] = make([]byte, size)
		for p := range c.places[i] {
			c.places[i][p] = 1
		}
	}
	return nil
}

func (c *copies) save(key string, output []byte) error {
	c.next = (c.next + 1) % len(c.places)
	copy(c.places[c.next], output)
	c.at[key] = c.next
	return nil
}

func (c *copies) load(key string, into []byte) error {
	copy(into, c.places[c.at[key]])
	return nil
}

func (c *copies) remove(key string) error {
	delete(c.at, key)
	return nil
}

func (*copies) Close() error { return nil }

// files is the least that a store on disk does: a temporary file that gets its name, and a read into the
// caller's memory. Whatever was written lately is in the kernel's page cache.
type files struct {
	parent func(*environment) string
	sync   bool
	folder string
}

func bareFiles(parent func(*environment) string, sync bool) func() outputStore {
	return func() outputStore { return &files{parent: parent, sync: sync} }
}

func (f *files) open(env *environment, _ int) (err error) {
	f.folder, err = os.MkdirTemp(f.parent(env), segmentName()+"-")
	return err
}

func (f *files) path(key string) string { return filepath.Join(f.folder, key) }

func (f *files) save(key string, output []byte) error {
	temporary := f.path("." + key)
	file, err := os.OpenFile(temporary, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(output)
	if f.sync && err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close(), os.Rename(temporary, f.path(key)))
}

func (f *files) load(key string, into []byte) error {
	file, err := os.Open(f.path(key))
	if err != nil {
		return err
	}
	n, err := file.ReadAt(into, 0)
	if n == len(into) {
		err = nil
	}
	return errors.Join(err, file.Close())
}

func (f *files) remove(key string) error { return os.Remove(f.path(key)) }

func (f *files) Close() error {
	if f.folder == "" {
		return nil
	}
	return os.RemoveAll(f.folder)
}
