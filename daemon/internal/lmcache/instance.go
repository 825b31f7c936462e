package lmcache

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/ringcache/ringcache/daemon/internal/process"
	"github.com/ringcache/ringcache/daemon/internal/lmcache/mp"
	"github.com/ringcache/ringcache/kv"
)

// maxInstances bounds the registered workers.
const maxInstances = 4096

// register registers a worker, and returns where it finds the chunks: no name if not in shared memory.
func (s *Server) register(by caller, q *mp.RegisterKvCacheEngineDrivenContextRequest) (name string, bytes int64, err error) {
	c, err := s.clientOf(by)
	if err != nil {
		return "", 0, err
	}
	defer c.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	size, err := s.settleChunk(1)
	var layout kv.Layout
	if err == nil {
		layout, err = parseLayout(q, s.o.Engine, size)
	}
	if err != nil {
		return "", 0, err
	}
	i := &instance{
		Layout: layout, Worker: allWorkers, Process: by.conn.process, Parent: parentOf(by.conn.process.PID),
		Inline: s.o.Bodies,
	}
	key := instanceID(q.InstanceId)
	if before := s.state.Instances[key]; before != nil && before.Layout.Model == layout.Model && before.Layout.World == layout.World {
		i.Worker = before.Worker
	} else if before == nil && len(s.state.Instances) >= maxInstances && !s.forgetInstance() {
		return "", 0, fmt.Errorf("lmcache: %d workers are registered, and no more can be: end some engines", len(s.state.Instances))
	}
	if layout.World == 1 {
		i.Worker = 0
	}
	s.state.Instances[key] = i
	delete(s.asked, q.InstanceId)
	s.saveState()
	s.log.Info("a worker was registered", "model", layout.Model, "workers", layout.World, "pid", by.conn.process.PID, "client", c.version.String(), "bytes", layout.Groups[0].Bytes())
	if s.o.Bodies {
		if c.version != since057 {
			return "", 0, fmt.Errorf("lmcache: this server is configured to send bytes within messages, and the engine's LMCache sends those as a pickle only; use LMCache 0.5.7, or shared memory: %w", fs.ErrInvalid)
		}
		return "", 0, nil
	}
	return s.o.Segment.Name, s.o.Segment.Size, nil
}

func instanceID(id int64) string { return strconv.FormatInt(id, 10) }

// forgetInstance makes room for one worker more: one goes whose process has ended. The caller has the lock.
func (s *Server) forgetInstance() bool {
	for id, i := range s.state.Instances {
		p, err := process.Open(i.Process)
		if err != nil {
			delete(s.state.Instances, id)
			return true
		}
		p.Close()
	}
	return false
}

// unregister ends the registration of a worker.
func (s *Server) unregister(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if key := instanceID(id); s.state.Instances[key] != nil {
		delete(s.state.Instances, key)
		s.saveState()
	}
}

// ping reports whether a worker need not register: an unknown one is told once that it has to, by an answer after which
// it takes the server for unhealthy; it registers when the next answer says that all is well.
func (s *Server) ping(id *int64) bool {
	if id == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.Instances[instanceID(*id)] != nil || s.asked[*id] {
		return true
	}
	if len(s.asked) >= maxInstances {
		clear(s.asked)
	}
	s.asked[*id] = true
	return false
}

// workerOf returns the instance of a worker whose call has a key, a copy; nil if it is not registered so.
func (s *Server) workerOf(id int64, key rangeKey) *instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.state.Instances[instanceID(id)]
	if i == nil || i.Layout.Model != key.model || i.Layout.World != key.world || key.worker == allWorkers {
		return nil
	}
	if i.Worker != key.worker {
		i.Worker = key.worker
		s.saveState()
	}
	found := *i
	return &found
}

// setInline notes that a worker has sent bytes within a message.
func (s *Server) setInline(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.state.Instances[instanceID(id)]; i != nil && !i.Inline {
		i.Inline = true
		s.saveState()
		s.log.Warn("a worker can't map the segment, so its bytes come and go within messages, which is slower: it has another /dev/shm, or is another user", "pid", i.Process.PID)
	}
}

// layoutsOf returns the layouts of the workers of the scheduler's engine; nil if they are not known, or in doubt. A
// scheduler does not say which workers are its own: they are those of its model, in its process or in children of it, if
// there are such.
func (s *Server) layoutsOf(key rangeKey, conn *connection) []kv.Layout {
	s.mu.Lock()
	defer s.mu.Unlock()
	var own, all []*instance
	for _, id := range slices.Sorted(maps.Keys(s.state.Instances)) {
		i := s.state.Instances[id]
		if i.Layout.Model != key.model || i.Layout.World != key.world {
			continue
		}
		all = append(all, i)
		if pid := conn.process.PID; pid != 0 && (i.Process.PID == pid || i.Parent == pid) {
			own = append(own, i)
		}
	}
	if len(own) > 0 {
		all = own
	}
	if len(all) == 0 {
		return nil
	}
	out := make([]kv.Layout, key.world)
	for w := range out {
		for _, i := range all {
			if i.Worker != w && i.Worker != allWorkers {
				continue
			}
			if len(out[w].Groups) > 0 && !equal(out[w], i.Layout) {
				return nil
			}
			out[w] = i.Layout
		}
		if len(out[w].Groups) == 0 { // nobody has called as this worker yet: it is as all others are
			for _, i := range all {
				if !equal(i.Layout, all[0].Layout) {
					return nil
				}
			}
			out[w] = all[0].Layout
		}
	}
	return out
}

func equal(a, b kv.Layout) bool {
	return a.Model == b.Model && a.Engine == b.Engine && a.World == b.World && a.ChunkTokens == b.ChunkTokens && slices.Equal(a.Groups, b.Groups)
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
