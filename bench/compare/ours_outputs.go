package main

import (
	"context"
	"errors"
	"os"

	"github.com/ringcache/ringcache/encoder"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/disk"
	"github.com/ringcache/ringcache/tier/memory"
)

// Names of our columns.
const (
	oursMemory = "ringcache memory"
	oursDisk   = "ringcache disk"
	oursSynced = "ringcache disk, fsync"
	oursTree   = "ringcache disk, tree of vLLM"
)

const outputSpace = "compare"

func outputObject(key string, size int) tier.Object {
	note := encoder.Note{DType: "bfloat16", Shape: []int{size / (2 * outputColumns), outputColumns}}
	return tier.Object{Key: tier.Key{Space: outputSpace, Name: key}, Size: int64(size), Note: []byte(note.String())}
}

// getOutput gets an output from a level into memory of the caller.
func getOutput(l tier.Level, key string, into []byte) error {
	get := []tier.Get{{Key: tier.Key{Space: outputSpace, Name: key}, Into: func(tier.Object) ([]byte, error) {
		return into, nil
	}}}
	l.Get(context.Background(), get)
	return get[0].Err
}

// memoryOutputs is a level in a shared segment. A save is what a connector does whose process has the segment
// mapped: it reserves, copies, and commits.
type memoryOutputs struct {
	level *memory.Level
	lease tier.Lease
}

func ourMemory() outputStore { return &memoryOutputs{} }

func (m *memoryOutputs) open(_ *environment, size int) (err error) {
	if m.level, err = memory.Open(memory.Options{Name: segmentName(),
		Size: int64(outputsKept * (size + slack))}); err != nil {
		return err
	}
	m.lease, err = m.level.Lease(context.Background(), tier.LeaseOptions{ID: "compare"})
	return err
}

func (m *memoryOutputs) save(key string, output []byte) error {
	o := outputObject(key, len(output))
	placed := m.lease.Reserve([]tier.Object{o})
	if placed[0].Err != nil {
		return placed[0].Err
	}
	copy(placed[0].Bytes, output)
	keys := []tier.Key{o.Key}
	err := m.lease.Commit(keys)[0]
	m.lease.Unpin(keys)
	return err
}

func (m *memoryOutputs) load(key string, into []byte) error { return getOutput(m.level, key, into) }

func (*memoryOutputs) remove(string) error { return nil }

func (m *memoryOutputs) Close() error {
	if m.level == nil {
		return nil
	}
	if m.lease != nil {
		m.lease.Release()
	}
	return errors.Join(m.level.CheckStructure(), m.level.Remove())
}

// diskOutputs is a level over a folder. It has room for everything, as vLLM's connector that deletes nothing.
type diskOutputs struct {
	parent func(*environment) string
	o      disk.Options
	folder string
	level  *disk.Level
}

// tree is the layout of the connector that writes files.
var tree = disk.Options{Layout: encoder.Tree{}, Space: outputSpace, Shared: true, Sync: disk.SyncNever}

func ourDisk(parent func(*environment) string, o disk.Options) func() outputStore {
	return func() outputStore { return &diskOutputs{parent: parent, o: o} }
}

func (d *diskOutputs) open(env *environment, _ int) (err error) {
	if d.folder, err = os.MkdirTemp(d.parent(env), segmentName()+"-"); err != nil {
		return err
	}
	d.level, err = disk.Open(d.folder, d.o)
	return err
}

func (d *diskOutputs) save(key string, output []byte) error {
	put := []tier.Put{{Object: outputObject(key, len(output)), Bytes: output}}
	d.level.Put(context.Background(), put)
	return put[0].Err
}

func (d *diskOutputs) load(key string, into []byte) error { return getOutput(d.level, key, into) }

func (d *diskOutputs) remove(key string) error {
	return d.level.Delete(context.Background(), []tier.Key{{Space: outputSpace, Name: key}})[0]
}

func (d *diskOutputs) Close() (err error) {
	if d.level != nil {
		err = d.level.Close()
	}
	if d.folder != "" {
		err = errors.Join(err, os.RemoveAll(d.folder))
	}
	return err
}
