package lmcache

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"time"

	"github.com/ringcache/ringcache/daemon/internal/process"
	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/kv"
)

// state is what outlives the server, in a file beside the segment: which release each client has, since
// tokens can't be read without, which workers are registered, since they do so again only after a
// failure, and quotas that were set while the server ran.
type state struct {
	Generation uint64               `json:"generation"`    // of the segment: workers that have mapped another one have to register again
	Minimum    int                  `json:"chunk_minimum"` // as configured
	Chunk      int                  `json:"chunk_size"`    // 0 until it is settled
	Clients    map[string]string    `json:"clients"`       // ID -> release
	Instances  map[string]*instance `json:"instances"`     // ID of the worker, as a number
	Layouts    []kv.Layout          `json:"layouts"`       // that were registered, the last one first
	// Quotas are bytes by level and salt.
	Quotas map[string]map[string]int64 `json:"quotas"`
}

// instance is a registered worker.
type instance struct {
	Layout kv.Layout `json:"layout"`
	// Worker is its number among the workers, allWorkers until a call has told it.
	Worker  int        `json:"worker"`
	Client  string     `json:"client"` // its ID
	Process process.ID `json:"process"`
	Parent  int        `json:"parent"` // process, 0 is unknown
	// Inline is set of a worker that has sent bytes within a message: it can't map the segment. Mapped is set
	// of one of which it is known that it does. Of a new one neither is known.
	Inline bool `json:"inline"`
	Mapped bool `json:"mapped"`

	examined time.Time
}

// maxStateBytes is more than the file has with as many workers and clients as there may be.
const maxStateBytes = 64 << 20

// loadState reads the file of an earlier server. A file that can't be read is as none: engines register
// again, and quotas are lost.
func loadState(path string, generation uint64) (state, error) {
	st := state{Generation: generation, Clients: map[string]string{}, Instances: map[string]*instance{}}
	if path == "" {
		return st, nil
	}
	_ = os.Remove(path + shmfile.EnginesNew) // of a server that was killed
	found, err := readState(path)
	if errors.Is(err, fs.ErrNotExist) {
		return st, nil
	}
	if err != nil {
		return st, err
	}
	for id, i := range found.Instances {
		if i == nil || found.Generation != generation {
			delete(found.Instances, id)
		}
	}
	found.forgetInvalid()
	found.Generation = generation
	return found, nil
}

// ErrState reports that what an earlier server kept can't be read. A server starts all the same.
var ErrState = errors.New("lmcache: what an earlier server kept can't be read, so engines have to register again, and quotas set by HTTP are lost")

func readState(path string) (state, error) {
	found := state{Clients: map[string]string{}, Instances: map[string]*instance{}}
	b, err := os.ReadFile(path)
	if err == nil && len(b) > maxStateBytes {
		err = fmt.Errorf("it has %d bytes, and %d are the most", len(b), maxStateBytes)
	}
	if err == nil {
		err = json.Unmarshal(b, &found)
	}
	if err != nil {
		return found, fmt.Errorf("%w: %s: %w", ErrState, path, err)
	}
	return found, nil
}

// CheckState looks at the file of an earlier server, and says what it has. It changes nothing.
func CheckState(path string) (string, error) {
	found, err := readState(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return path + " is made", nil
	case err != nil:
		return "", err
	}
	return fmt.Sprintf("%s has %d workers of engines, which need not register again", path, len(found.Instances)), nil
}

// marshal returns what is written to the file.
func (st *state) marshal() ([]byte, error) { return json.Marshal(st) }

// writeState replaces the file. A kill leaves the old one or the new one.
func writeState(path string, b []byte) error {
	if path == "" {
		return nil
	}
	next := path + shmfile.EnginesNew
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(next))
	}
	return nil
}

// forgetRelease makes room for the release of one client more: one that is not served goes. It reports whether there
// is room.
func (st *state) forgetRelease(served map[string]*client) bool {
	for id := range st.Clients {
		if served[id] == nil {
			delete(st.Clients, id)
			return true
		}
	}
	return false
}

// forgetDead forgets the workers whose process has ended, and reports whether there were some.
func (st *state) forgetDead() bool {
	before := len(st.Instances)
	maps.DeleteFunc(st.Instances, func(_ string, i *instance) bool {
		p, err := process.Open(i.Process)
		if err != nil {
			return errors.Is(err, process.ErrDead)
		}
		p.Close()
		return false
	})
	return len(st.Instances) < before
}

// sameEngine reports whether a process is known to have workers of a scheduler's engine.
func (st *state) sameEngine(scheduler, worker process.ID) bool {
	if scheduler.Known() && scheduler == worker {
		return true
	}
	for _, i := range st.Instances {
		if worker.Known() && i.Process == worker && i.belongsTo(scheduler) {
			return true
		}
	}
	return false
}
