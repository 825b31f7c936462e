package lmcache

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ringcache/ringcache/daemon/internal/lmcache/mp"
	"github.com/ringcache/ringcache/daemon/internal/process"
	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/kv"
)

// workers are the registered workers of engines: which layout each has, whose it is, and whether it can load.
// The state of the server has them, and its lock guards them.
type workers struct {
	s       *Server
	segment string         // see segmentOf
	asked   map[int64]bool // unknown workers that were told so by a Ping
}

// maxInstances bounds the registered workers.
const maxInstances = 1024

// register registers a worker, and returns where it finds the chunks: no name if not in shared memory.
func (w *workers) register(
	by caller, q *mp.RegisterKvCacheEngineDrivenContextRequest,
) (name string, bytes int64, err error) {
	c, err := w.s.clientOf(by)
	if err != nil {
		return "", 0, err
	}
	defer c.mu.Unlock()
	w.s.mu.Lock()
	defer w.s.unlock()
	size, err := w.s.settleChunk(1)
	var layout kv.Layout
	if err == nil {
		layout, err = parseLayout(q, w.s.o.Engine, size)
	}
	if err != nil {
		return "", 0, err
	}
	if w.s.o.Bodies && c.version != since057 {
		return "", 0, fmt.Errorf("lmcache: this server is configured to send bytes within messages, and the engine's LMCache sends those as a pickle only; use LMCache 0.5.7, or shared memory: %w", fs.ErrInvalid)
	}
	i := &instance{
		Layout: layout, Worker: allWorkers, Client: c.id, Process: by.conn.process,
		Parent: parentOf(by.conn.process.PID), Inline: w.s.o.Bodies,
	}
	key := instanceID(q.InstanceId)
	before := w.s.state.Instances[key]
	if before == nil {
		w.s.state.forgetDead()
	}
	if before == nil && len(w.s.state.Instances) >= maxInstances && !w.forgetInstance() {
		return "", 0, fmt.Errorf("lmcache: %d workers are registered, and no more can be: end some engines", len(w.s.state.Instances))
	}
	if before != nil && before.Layout.Model == layout.Model && before.Layout.World == layout.World {
		i.Worker = before.Worker
	}
	// It registers again after each failed heartbeat, and has mapped the segment or not as before.
	if before != nil && before.Process == i.Process && before.Client == i.Client {
		i.Inline, i.Mapped = i.Inline || before.Inline, before.Mapped
	}
	if layout.World == 1 {
		i.Worker = 0
	}
	w.s.state.Instances[key] = i
	w.s.state.remember(layout)
	delete(w.asked, q.InstanceId)
	w.s.dirty = true
	w.s.log.Info("a worker was registered", "model", layout.Model, "workers", layout.World, "pid", by.conn.process.PID,
		"client", c.version.String(), "bytes", layout.Groups[0].Bytes())
	if w.s.o.Bodies {
		return "", 0, nil
	}
	return w.s.o.Segment.Name, w.s.o.Segment.Size, nil
}

func instanceID(id int64) string { return strconv.FormatInt(id, 10) }

// forgetInstance makes room for one worker more: one goes that has no connection, which registers again if it
// lives. The caller has the lock.
func (w *workers) forgetInstance() bool {
	for id, i := range w.s.state.Instances {
		if !w.connected(i) {
			delete(w.s.state.Instances, id)
			return true
		}
	}
	return false
}

// connected reports whether a worker's client has a connection. The caller has the lock.
func (w *workers) connected(i *instance) bool {
	c := w.s.served[i.Client]
	return c != nil && c.connected
}

// unregister ends the registration of a worker.
func (w *workers) unregister(id int64) {
	w.s.mu.Lock()
	defer w.s.unlock()
	if key := instanceID(id); w.s.state.Instances[key] != nil {
		delete(w.s.state.Instances, key)
		w.s.dirty = true
	}
}

// ping reports whether a worker need not register: an unknown one is told once that it has to, by an answer
// after which it takes the server for unhealthy; it registers when the next answer says that all is well.
func (w *workers) ping(by caller, id *int64) bool {
	if id == nil {
		return true
	}
	w.s.mu.Lock()
	defer w.s.unlock()
	if i := w.s.state.Instances[instanceID(*id)]; i != nil {
		w.speaksFor(by, i)
		return true
	}
	if w.asked[*id] {
		return true
	}
	if len(w.asked) >= maxInstances {
		clear(w.asked)
	}
	w.asked[*id] = true
	return false
}

// speaksFor makes a caller the client of a worker that it has named: a client of ZMQ is another one by each
// connection. Its release is that of the worker, which no other call may have told yet. The caller has the lock.
func (w *workers) speaksFor(by caller, i *instance) {
	c := w.s.served[by.id]
	if c == nil || i.Client == by.id || i.Process != by.conn.process {
		return
	}
	if r := releases[w.s.state.Clients[i.Client]]; w.s.state.Clients[by.id] == "" && r != unknown {
		w.s.setRelease(c, r)
	}
	i.Client, w.s.dirty = by.id, true
}

// workerOf returns the instance of a worker whose call has a key, a copy; nil if it is not registered so.
func (w *workers) workerOf(by caller, id int64, key rangeKey) *instance {
	w.s.mu.Lock()
	defer w.s.unlock()
	i := w.s.state.Instances[instanceID(id)]
	if i == nil || i.Layout.Model != key.model || i.Layout.World != key.world || key.worker == allWorkers {
		return nil
	}
	w.speaksFor(by, i)
	if i.Worker != key.worker {
		i.Worker = key.worker
		w.s.dirty = true
	}
	if !i.Inline && !i.Mapped {
		w.examine(i)
	}
	found := *i
	return &found
}

// setInline notes that a worker has bytes within messages.
func (w *workers) setInline(id int64) {
	w.s.mu.Lock()
	defer w.s.unlock()
	if i := w.s.state.Instances[instanceID(id)]; i != nil {
		w.inline(i)
	}
}

// inline notes that a worker can't map the segment. The caller has the lock.
func (w *workers) inline(i *instance) {
	if i.Inline {
		return
	}
	i.Inline, i.Mapped = true, false
	w.s.dirty = true
	w.s.log.Warn("a worker can't map the segment, so its bytes come and go within messages, which is slower: it has another /dev/shm, or is another user", "pid", i.Process.PID)
}

// setMapped notes that a worker has written to the segment.
func (w *workers) setMapped(id int64) {
	w.s.mu.Lock()
	defer w.s.unlock()
	if i := w.s.state.Instances[instanceID(id)]; i != nil && !i.Mapped && !i.Inline {
		i.Mapped, w.s.dirty = true, true
	}
}

// loads reports whether a worker can load what a look-up finds: a load that fails may end the request. One
// that never loads stores all the same, which shows that it maps the segment. The caller has the lock.
//
// See docs/decisions.md, "A worker that is not known to map the segment finds nothing".
func (w *workers) loads(i *instance) bool {
	if !i.Inline && !i.Mapped {
		w.examine(i)
	}
	if i.Inline {
		return w.s.state.Clients[i.Client] == since057.String()
	}
	return i.Mapped
}

// examine finds out whether a worker maps the segment, if its process is known. It maps it at once when it
// has been answered. The caller has the lock.
func (w *workers) examine(i *instance) {
	now := time.Now()
	if w.segment == "" || now.Sub(i.examined) < time.Second {
		return
	}
	i.examined = now
	p, err := process.Open(i.Process)
	if err != nil {
		return
	}
	defer p.Close()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(i.Process.PID) + "/maps")
	if err == nil && mapped(string(b), func(file, _ string) bool { return file == w.segment }) != "" {
		i.Mapped, w.s.dirty = true, true
	}
}

// segmentOf returns what maps calls the file of a segment, empty if that is not known. It maps the file: this
// process may have mapped it before it had its name.
func segmentOf(path string) string {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return ""
	}
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	m, err := shmfile.Map(f, int64(os.Getpagesize()), false)
	if err != nil {
		return ""
	}
	defer func() { _ = shmfile.Unmap(m) }()
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return ""
	}
	return mapped(string(b), func(_, at string) bool { return at == path })
}

// mapped returns the device and inode of the first file of a /proc/PID/maps that is wanted, empty if there is
// none. What they are is compared only with other lines of maps: of some filesystems stat says otherwise.
func mapped(maps string, wanted func(file, path string) bool) string {
	for line := range strings.Lines(maps) {
		fields := strings.Fields(line) // range, rights, offset, device, inode, path
		if len(fields) < 6 {
			continue
		}
		if file := fields[3] + " " + fields[4]; wanted(file, fields[5]) {
			return file
		}
	}
	return ""
}

// layoutsOf returns the layouts of the workers of the scheduler's engine; nil if they are not known, or in
// doubt, or if a worker may be unable to load. A scheduler does not say which workers are its own: they are
// those of its model, in its process or in children of it, if there are such; or else those that are
// connected, if there are such. Those of another scheduler are none of them: its own may have to register again.
func (w *workers) layoutsOf(key rangeKey, conn *connection) []kv.Layout {
	w.s.mu.Lock()
	defer w.s.unlock()
	out := w.layouts(key, conn)
	if out == nil && w.s.state.forgetDead() { // they may have been what was in doubt
		w.s.dirty = true
		out = w.layouts(key, conn)
	}
	return out
}

func (w *workers) layouts(key rangeKey, conn *connection) []kv.Layout {
	var own, connected, all []*instance
	for _, id := range slices.Sorted(maps.Keys(w.s.state.Instances)) {
		i := w.s.state.Instances[id]
		if i.Layout.Model != key.model || i.Layout.World != key.world {
			continue
		}
		all = append(all, i)
		if w.connected(i) {
			connected = append(connected, i)
		}
		if i.belongsTo(conn.process) {
			own = append(own, i)
		}
	}
	if len(own) == 0 {
		schedulers := w.schedulersBeside(conn.process)
		isAnothers := func(i *instance) bool { return slices.ContainsFunc(schedulers, i.belongsTo) }
		all, connected = slices.DeleteFunc(all, isAnothers), slices.DeleteFunc(connected, isAnothers)
	}
	switch {
	case len(own) > 0:
		all = own
	case len(connected) > 0:
		all = connected
	}
	if len(all) < key.world { // one that has not registered could not load
		return nil
	}
	out := make([]kv.Layout, key.world)
	for n := range out {
		found := slices.DeleteFunc(slices.Clone(all), func(i *instance) bool {
			return i.Worker != n && i.Worker != allWorkers
		})
		if len(found) == 0 { // nobody has called as this worker yet: it is as all others are
			found = all
		}
		for _, i := range found {
			if !equal(i.Layout, found[0].Layout) || !w.loads(i) {
				return nil
			}
		}
		out[n] = found[0].Layout
		// The prefix that all have is of the same groups.
		if !slices.EqualFunc(out[n].Groups, out[0].Groups, func(a, b kv.Group) bool { return a.Window == b.Window }) {
			return nil
		}
	}
	return out
}

// schedulersBeside returns the processes of schedulers but one. The caller has the lock.
func (w *workers) schedulersBeside(one process.ID) (out []process.ID) {
	for _, c := range w.s.served {
		if c.looks && c.process != one {
			out = append(out, c.process)
		}
	}
	return out
}

// belongsTo reports whether a worker is known to be one of a scheduler's engine: in its process, or in a child.
func (i *instance) belongsTo(scheduler process.ID) bool {
	return scheduler.Known() &&
		(i.Process == scheduler || i.Process.Namespace == scheduler.Namespace && i.Parent == scheduler.PID)
}

func equal(a, b kv.Layout) bool {
	return a.Model == b.Model && a.Engine == b.Engine && a.World == b.World && a.ChunkTokens == b.ChunkTokens &&
		slices.Equal(a.Groups, b.Groups)
}

// parentOf returns the parent of a process, 0 if that is not known.
func parentOf(pid int) int {
	if pid == 0 {
		return 0
	}
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b[max(0, strings.LastIndexByte(string(b), ')')):]), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 2 {
		return 0
	}
	n, err := strconv.Atoi(fields[1])
	if err != nil {
		return 0
	}
	return n
}
