package controller

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/tinylib/msgp/msgp"

	"github.com/ringcache/ringcache/kv/directory"
)

// take applies what a worker pushes, which has no answer.
func (s *Server) take(m *message) error {
	id := m.id()
	switch m.Type {
	case "DeRegisterMsg":
		if !s.o.Directory.Deregister(id) {
			return directory.ErrUnknown
		}
		return nil
	case "KVAdmitMsg", "KVEvictMsg":
		// LMCache's controller has no use for these; their numbers are not those of operations.
		return s.o.Directory.Apply(id, m.Location, []directory.Report{{
			Evicted: m.Type == "KVEvictMsg", Key: directory.NumberKey(uint64(m.Key)), Number: -1,
		}})
	case "BatchedKVOperationMsg":
		reports := make([]directory.Report, len(m.Operations))
		for i, op := range m.Operations {
			reports[i] = directory.Report{
				Evicted: op.Type == "evict", Key: directory.NumberKey(uint64(op.Key)), Number: op.SeqNum,
			}
		}
		return s.o.Directory.Apply(id, m.Location, reports)
	case "FullSyncBatchMsg":
		batch, err := count("batch_id", m.BatchID)
		if err != nil {
			return err
		}
		return s.o.Directory.SyncBatch(id, m.Location, m.SyncID, batch, keysOf(m.Keys))
	case "FullSyncEndMsg":
		return s.o.Directory.EndSync(id, m.SyncID)
	}
	return invalid("%s is not for this socket", m.Type)
}

func (m *message) id() directory.ID { return directory.ID{Instance: m.InstanceID, Worker: m.WorkerID} }

func (m *message) worker() directory.Worker {
	w := directory.Worker{ID: m.id(), IP: m.IP, Port: m.Port}
	if m.PeerInitURL != nil {
		w.PeerURL = *m.PeerInitURL
	}
	return w
}

func count(name string, n int64) (int, error) {
	if n < 0 || n > math.MaxInt32 {
		return 0, invalid("%s is %d", name, n)
	}
	return int(n), nil
}

func keysOf(hashes []chunkHash) []directory.Key {
	keys := make([]directory.Key, len(hashes))
	for i, h := range hashes {
		keys[i] = directory.NumberKey(uint64(h))
	}
	return keys
}

// beat answers a heartbeat.
func (s *Server) beat(m *message) ([]byte, error) {
	reason, err := s.o.Directory.Heartbeat(m.worker())
	if err != nil {
		return nil, err
	}
	f := begin("HeartbeatRetMsg", 1)
	if reason == "" {
		return f.list("commands", 0).b, nil
	}
	f.list("commands", 1)
	f.b = msgp.AppendString(msgp.AppendString(msgp.AppendMapHeader(f.b, 3), "command_type"), "full_sync")
	f.text("reason", reason).textOrNil("args", "")
	return f.b, nil
}

// answer answers a request of a worker or of an orchestrator. heartbeat is the address of the socket for heartbeats, as
// the peer reaches it.
func (s *Server) answer(ctx context.Context, m *message, heartbeat string) ([]byte, error) {
	d := s.o.Directory
	switch m.Type {
	case "RegisterMsg":
		if err := d.Register(m.worker()); err != nil {
			return nil, err
		}
		f := begin("RegisterRetMsg", 1)
		if heartbeat == "" {
			return f.dict("extra_config", 0).b, nil
		}
		return f.dict("extra_config", 1).text("heartbeat_url", heartbeat).b, nil
	case "HeartbeatMsg":
		return s.beat(m)
	case "BatchedP2PLookupMsg":
		return s.peer(m), nil
	case "FullSyncStartMsg":
		batches, err := count("batch_count", m.BatchCount)
		if err == nil {
			err = d.StartSync(m.id(), m.Location, m.SyncID, batches)
		}
		f := begin("FullSyncStartRetMsg", 3).text("sync_id", m.SyncID).truth("accepted", err == nil)
		if err != nil {
			return f.text("error_msg", err.Error()).b, nil
		}
		return f.textOrNil("error_msg", "").b, nil
	case "FullSyncStatusMsg":
		status := d.SyncStatus(m.id(), m.SyncID)
		missing := make([]int64, len(status.Missing))
		for i, n := range status.Missing {
			missing[i] = int64(n)
		}
		return begin("FullSyncStatusRetMsg", 5).text("sync_id", m.SyncID).truth("is_complete", status.Complete).
			float("global_progress", status.Progress).truth("can_exit_freeze", status.Release).
			numbers("missing_batches", missing).b, nil
	case "QueryInstMsg":
		instance := ""
		for _, w := range d.Workers("") {
			if w.IP == m.IP {
				instance = w.Instance
				break
			}
		}
		return begin("QueryInstRetMsg", 2).text("event_id", m.EventID).textOrNil("instance_id", instance).b, nil
	case "QueryWorkerInfoMsg":
		return s.workers(m), nil
	case "LookupMsg":
		return s.lookup(m)
	case "ClearMsg", "PinMsg", "HealthMsg":
		return s.command(ctx, m)
	case "CompressMsg", "DecompressMsg", "MoveMsg", "CheckFinishMsg":
		return nil, fmt.Errorf("controller: %s is not supported: %w", m.Type, errors.ErrUnsupported)
	}
	return nil, invalid("%s is not for this socket", m.Type)
}

// peer finds the instance from which a worker can get the most of its chunks.
func (s *Server) peer(m *message) []byte {
	var instance, location, url string
	var chunks int64
	for _, p := range s.o.Directory.Find(keysOf(m.Hashes), directory.Query{Most: 16, Exclude: m.InstanceID}) {
		if w, _ := s.o.Directory.Worker(directory.ID{Instance: p.Instance, Worker: m.WorkerID}); w.PeerURL != "" {
			instance, location, url, chunks = p.Instance, p.Last, w.PeerURL, int64(p.Chunks)
			break
		}
	}
	f := begin("BatchedP2PLookupRetMsg", 1).list("layout_info", 1)
	f.b = msgp.AppendString(msgp.AppendString(msgp.AppendArrayHeader(f.b, 4), instance), location)
	return msgp.AppendString(appendInt(f.b, chunks), url)
}

func (s *Server) workers(m *message) []byte {
	instance := m.InstanceID
	if instance == "all" {
		instance = ""
	}
	all := slices.DeleteFunc(s.o.Directory.Workers(instance), func(w directory.Worker) bool {
		return len(m.WorkerIDs) > 0 && !slices.Contains(m.WorkerIDs, w.ID.Worker)
	})
	f := begin("QueryWorkerInfoRetMsg", 2).text("event_id", m.EventID).list("worker_infos", len(all))
	for _, w := range all {
		f.b = msgp.AppendMapHeader(f.b, 7)
		f.text("instance_id", w.Instance).number("worker_id", w.ID.Worker).text("ip", w.IP).number("port", w.Port).
			textOrNil("peer_init_url", w.PeerURL).
			float("registration_time", seconds(w.Registered)).float("last_heartbeat_time", seconds(w.Heartbeat))
	}
	return f.b
}

func seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

// lookup answers which instances hold the longest prefixes of tokens, with the location of the last chunk of each.
func (s *Server) lookup(m *message) ([]byte, error) {
	f := begin("LookupRetMsg", 2).text("event_id", m.EventID)
	c := s.hasher.NewChain()
	if err := c.SetTokens(m.Tokens); err != nil {
		return nil, err
	}
	found := s.o.Directory.Find(directory.AppendKeys(nil, "", c), directory.Query{Most: mostAnswers})
	f.dict("layout_info", len(found))
	for _, p := range found {
		f.b = msgp.AppendString(msgp.AppendArrayHeader(msgp.AppendString(f.b, p.Instance), 2), p.Last)
		f.b = appendInt(f.b, int64(min(p.Chunks*s.chunk, len(m.Tokens))))
	}
	return f.b, nil
}

// mostAnswers is how many instances one look-up names.
const mostAnswers = 64
