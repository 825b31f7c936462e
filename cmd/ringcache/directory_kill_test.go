package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"

	"github.com/ringcache/ringcache/internal/zmtp"
)

var directoryKills = flag.Int("directory.kills", 5, "TestDirectoryKills: how often the process is killed")

// killedDirectory is a process of ringcache directory that is killed and begins anew at the same addresses.
type killedDirectory struct {
	t     *testing.T
	args  []string
	addrs map[string]string
	cmd   *exec.Cmd
}

// withSockets gives a directory addresses of its own.
func withSockets(t *testing.T, args ...string) *killedDirectory {
	d := &killedDirectory{t: t, addrs: map[string]string{}, args: append([]string{"directory", "--no-log"}, args...)}
	for _, name := range []string{"http", "pull", "reply", "heartbeat"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		d.addrs[name] = l.Addr().String()
		d.args = append(d.args, "--"+name, d.addrs[name])
		require.NoError(t, l.Close())
	}
	return d
}

func (d *killedDirectory) start() {
	d.cmd = exec.Command(os.Args[0], d.args...)
	d.cmd.Env = append(os.Environ(), "RINGCACHE_TEST_COMMAND=1")
	require.NoError(d.t, d.cmd.Start())
	require.Eventually(d.t, func() bool {
		r, err := http.Get("http://" + d.addrs["http"] + "/healthz")
		if err != nil {
			return false
		}
		r.Body.Close()
		return true
	}, time.Minute, time.Millisecond)
}

func (d *killedDirectory) http(method, path string, body any) (status int, answer map[string]any) {
	b, err := json.Marshal(body)
	require.NoError(d.t, err)
	q, err := http.NewRequestWithContext(d.t.Context(), method, "http://"+d.addrs["http"]+path, bytes.NewReader(b))
	require.NoError(d.t, err)
	r, err := http.DefaultClient.Do(q)
	require.NoError(d.t, err)
	defer r.Body.Close()
	b, err = io.ReadAll(r.Body)
	require.NoError(d.t, err)
	require.NoError(d.t, json.Unmarshal(b, &answer), "%s", b)
	return r.StatusCode, answer
}

const killedKeys = 48

// reportingWorker is a worker of LMCache's in-process engine: it pushes reports and does what the answers to
// its heartbeats want. It never registers again.
type reportingWorker struct {
	d      *killedDirectory
	chunks [killedKeys]bool
	number int64
	syncs  int
	conns  map[string]*zmtp.Conn
}

// conn returns a connection to a socket, or nil if nobody is there.
func (w *reportingWorker) conn(name string, kind zmq4.SocketType) *zmtp.Conn {
	if w.conns[name] == nil {
		raw, err := net.Dial("tcp", w.d.addrs[name])
		if err != nil {
			return nil
		}
		c := zmtp.New(raw, zmtp.Options{MaxMessage: 1 << 20, SendTimeout: time.Minute})
		if _, err := c.Greet(kind, time.Minute); err != nil {
			raw.Close()
			return nil
		}
		w.conns[name] = c
	}
	return w.conns[name]
}

func (w *reportingWorker) hangUp() {
	for name, c := range w.conns {
		c.Close()
		delete(w.conns, name)
	}
}

func encoded(t *testing.T, class string, fields map[string]any) []byte {
	fields["type"], fields["worker_id"] = class, 0
	if fields["instance_id"] == nil {
		fields["instance_id"] = "engine"
	}
	b, err := msgp.AppendIntf(nil, fields)
	require.NoError(t, err)
	return b
}

// push sends what has no answer. It is lost where nobody is there.
func (w *reportingWorker) push(class string, fields map[string]any) {
	if c := w.conn("pull", zmq4.Push); c != nil {
		if err := c.Send([][]byte{encoded(w.d.t, class, fields)}); err != nil {
			c.Close()
			delete(w.conns, "pull")
		}
	}
}

func (w *reportingWorker) ask(socket, class string, fields map[string]any) map[string]any {
	c := w.conn(socket, zmq4.Dealer)
	require.NotNil(w.d.t, c)
	require.NoError(w.d.t, c.Send([][]byte{{}, encoded(w.d.t, class, fields)}))
	frames, err := c.Receive()
	require.NoError(w.d.t, err)
	answer, _, err := msgp.ReadIntfBytes(frames[1])
	require.NoError(w.d.t, err)
	require.NotEqual(w.d.t, "ErrorMsg", answer.(map[string]any)["type"], answer)
	return answer.(map[string]any)
}

func (w *reportingWorker) report(key int) {
	w.chunks[key] = !w.chunks[key]
	kind := "evict"
	if w.chunks[key] {
		kind = "admit"
	}
	w.push("BatchedKVOperationMsg", map[string]any{"location": "LocalCPUBackend", "operations": []any{
		map[string]any{"op_type": kind, "key": key + 1, "seq_num": w.number},
	}})
	w.number++
}

func (w *reportingWorker) keys(here bool) (all []any) {
	for key, has := range w.chunks {
		if has == here {
			all = append(all, key+1)
		}
	}
	return all
}

// heal sends heartbeats, and all that the worker has when it is asked for it, until nothing is wanted.
func (w *reportingWorker) heal(reports func()) {
	for {
		beat := w.ask("heartbeat", "HeartbeatMsg",
			map[string]any{"ip": "127.0.0.1", "port": 1, "peer_init_url": "here:1"})
		if len(beat["commands"].([]any)) == 0 {
			return
		}
		w.syncs++
		sync := map[string]any{"sync_id": fmt.Sprint("sync", w.syncs), "location": "LocalCPUBackend"}
		with := func(name string, value any) map[string]any {
			m := map[string]any{name: value}
			for k, v := range sync {
				m[k] = v
			}
			return m
		}
		batches := slices.Collect(slices.Chunk(w.keys(true), 10))
		start := with("total_keys", len(w.keys(true)))
		start["batch_count"] = len(batches)
		require.Equal(w.d.t, true, w.ask("reply", "FullSyncStartMsg", start)["accepted"])
		for i, keys := range batches {
			reports()
			m := with("batch_id", i)
			m["keys"] = keys
			w.push("FullSyncBatchMsg", m)
		}
		w.push("FullSyncEndMsg", with("actual_total_keys", len(w.keys(true))))
		require.Eventually(w.d.t, func() bool {
			return w.ask("reply", "FullSyncStatusMsg", map[string]any{"sync_id": sync["sync_id"]})["is_complete"].(bool)
		}, time.Minute, time.Millisecond)
	}
}

// held returns how many of keys the directory says that the worker has, from the first one on.
func (w *reportingWorker) held(keys ...any) int64 {
	answer := w.ask("reply", "BatchedP2PLookupMsg", map[string]any{"hashes": keys, "instance_id": "other"})
	_ = answer
	layout := answer["layout_info"].([]any)[0].([]any)
	return asInt(layout[2])
}

func asInt(x any) int64 {
	if u, ok := x.(uint64); ok {
		return int64(u)
	}
	return x.(int64)
}

// engine is a vLLM that publishes its events, and keeps them.
type engine struct {
	t       *testing.T
	addrs   [2]string // of the publisher and of the replay
	mu      sync.Mutex
	blocks  [killedKeys]bool
	batches [][]byte
	subs    []*zmtp.Conn
}

func newEngine(t *testing.T) *engine {
	e := &engine{t: t}
	var work sync.WaitGroup
	var conns []net.Conn
	var all []net.Listener
	for i, kind := range []zmq4.SocketType{zmq4.Pub, zmq4.Router} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		e.addrs[i] = l.Addr().String()
		all = append(all, l)
		work.Go(func() {
			for {
				raw, err := l.Accept()
				if err != nil {
					return
				}
				e.mu.Lock()
				conns = append(conns, raw)
				e.mu.Unlock()
				work.Go(func() {
					defer raw.Close()
					c := zmtp.New(raw, zmtp.Options{MaxMessage: 1 << 20, SendTimeout: time.Minute})
					if _, err := c.Greet(kind, time.Minute); err == nil {
						e.serve(c, kind)
					}
				})
			}
		})
	}
	t.Cleanup(func() {
		for _, l := range all {
			l.Close()
		}
		e.mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		e.mu.Unlock()
		work.Wait()
	})
	return e
}

func (e *engine) serve(c *zmtp.Conn, kind zmq4.SocketType) {
	frames, err := c.Receive()
	if err != nil {
		return
	}
	if kind == zmq4.Pub {
		e.mu.Lock()
		e.subs = append(e.subs, c)
		e.mu.Unlock()
		_, _ = c.Receive() // until it goes
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for n := binary.BigEndian.Uint64(frames[1]); n < uint64(len(e.batches)); n++ {
		_ = c.Send([][]byte{{}, {}, binary.BigEndian.AppendUint64(nil, n), e.batches[n]})
	}
	_ = c.Send([][]byte{{}, {}, binary.BigEndian.AppendUint64(nil, math.MaxUint64), {}})
}

func (e *engine) publish(block int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.blocks[block] = !e.blocks[block]
	kind := "BlockRemoved"
	if e.blocks[block] {
		kind = "BlockStored"
	}
	b, err := msgp.AppendIntf(nil,
		[]any{float64(len(e.batches)), []any{map[string]any{"type": kind, "block_hashes": []any{block + 1}}}})
	require.NoError(e.t, err)
	number := binary.BigEndian.AppendUint64(nil, uint64(len(e.batches)))
	e.batches = append(e.batches, b)
	e.subs = slices.DeleteFunc(e.subs, func(c *zmtp.Conn) bool { return c.Send([][]byte{{}, number, b}) != nil })
}

// begin makes the engine a new one, which has nothing.
func (e *engine) begin() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.batches, e.blocks = nil, [killedKeys]bool{}
	for _, c := range e.subs {
		c.Close()
	}
	e.subs = nil
}

func (e *engine) hashes(here bool) (all []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for block, has := range e.blocks {
		if has == here {
			all = append(all, fmt.Sprintf("%016x", block+1))
		}
	}
	return all
}

// held returns how many of blocks the directory says that the engine has, from the first one on, and whether it is
// stale.
func (e *engine) held(d *killedDirectory, hashes ...string) (n int, stale bool) {
	status, answer := d.http(http.MethodPost, "/events/longest",
		map[string]any{"model_name": "m", "block_hashes": hashes})
	require.Equal(e.t, http.StatusOK, status)
	for _, i := range answer["instances"].([]any) {
		i := i.(map[string]any)
		n, stale = int(i["blocks"].(float64)), i["stale"].(bool)
	}
	return n, stale
}

// TestDirectoryKills: a directory that is killed under reports and begins anew says what is true again: of
// workers of the controller by a heartbeat and a full synchronisation, of vLLM by the replay. A server of
// 0.5.7 is known with its next events, and stale.
func TestDirectoryKills(t *testing.T) {
	e := newEngine(t)
	d := withSockets(t, "--events", "tcp://"+e.addrs[0]+",instance=pod,model=m,replay=tcp://"+e.addrs[1])
	w := &reportingWorker{d: d, conns: map[string]*zmtp.Conn{}}
	defer w.hangUp()
	d.start()
	defer func() {
		_ = d.cmd.Process.Kill()
		_ = d.cmd.Wait() // the error is the signal
	}()
	w.ask("reply", "RegisterMsg", map[string]any{"ip": "127.0.0.1", "port": 1, "peer_init_url": "here:1"})
	rng := rand.New(rand.NewPCG(7, 8))
	server := map[string]any{"instance_id": "server", "ip": "127.0.0.1", "http_port": 1}
	key := map[string]any{"chunk_hash_hex": "00", "model_name": "m", "kv_rank": 0}
	for kill := range *directoryKills {
		at := rng.IntN(60)
		for i := range 60 {
			if i == at {
				require.NoError(t, d.cmd.Process.Kill())
			}
			w.report(rng.IntN(killedKeys))
			e.publish(rng.IntN(killedKeys))
		}
		_ = d.cmd.Wait() // the error is the signal
		w.hangUp()
		http.DefaultClient.CloseIdleConnections()
		if kill%20 == 19 {
			e.begin()
		}
		d.start()
		w.report(rng.IntN(killedKeys)) // of a worker that is not known
		w.heal(func() { w.report(rng.IntN(killedKeys)) })
		e.publish(rng.IntN(killedKeys))
		require.Eventually(t, func() bool {
			for _, key := range w.keys(false) {
				if w.held(key) != 0 {
					return false
				}
			}
			all := w.keys(true)
			return len(all) == 0 || w.held(all...) == int64(len(all))
		}, time.Minute, time.Millisecond, "kill %d: the worker", kill)
		require.Eventually(t, func() bool {
			for _, hash := range e.hashes(false) {
				if n, _ := e.held(d, hash); n != 0 {
					return false
				}
			}
			all := e.hashes(true)
			n, stale := e.held(d, all...)
			return n == len(all) && !stale
		}, time.Minute, time.Millisecond, "kill %d: the engine", kill)

		status, _ := d.http(http.MethodPut, "/instances/server/heartbeat", nil)
		require.Equal(t, http.StatusNotFound, status, "it is told to register again")
		status, _ = d.http(http.MethodPost, "/instances", server)
		require.Equal(t, http.StatusOK, status)
		status, _ = d.http(http.MethodPost, "/events", map[string]any{"batches": []any{map[string]any{
			"instance_id": "server", "incarnation": 1, "seq": kill + 2, "event_type": "store", "tier": "l1",
			"backend": "dram",
			"entries": []any{map[string]any{"key": key, "size_bytes": 1}},
		}}})
		require.Equal(t, http.StatusOK, status)
		_, answer := d.http(http.MethodPost, "/directory/lookup", map[string]any{"keys": []any{key}})
		require.Len(t, answer["results"].([]any)[0].(map[string]any)["placements"], 1)
	}
	t.Logf("%d kills, %d full synchronisations", *directoryKills, w.syncs)
}
