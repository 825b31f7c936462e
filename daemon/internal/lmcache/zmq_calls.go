package lmcache

import (
	"errors"
	"fmt"

	"github.com/tinylib/msgp/msgp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/ringcache/ringcache/daemon/internal/lmcache/mp"
	"github.com/ringcache/ringcache/internal/msgpackguard"
)

// A call by ZMQ is a message of frames, each of which has one msgpack value: a number that the client gives the
// call, the operation, and the arguments. The answer has the number and the operation again, and its value; none
// if that is nothing.
//
// The operation is a text, or the number of one that had a number before texts came.

// operation is a method as ZMQ carries it.
type operation struct {
	method string
	read   func(a *arguments) proto.Message
}

// operations are what clients call, by the texts of LMCache.
var operations = map[string]operation{
	"get_chunk_size": {"GetChunkSize", func(*arguments) proto.Message { return &mp.GetChunkSizeRequest{} }},
	"negotiate_chunk_size": {"NegotiateChunkSize", func(a *arguments) proto.Message {
		a.release = since057
		return &mp.NegotiateChunkSizeRequest{RequiredChunkAlignment: a.integer()}
	}},
	"get_experimental": {"GetExperimental", func(*arguments) proto.Message { return &mp.GetExperimentalRequest{} }},
	"noop":             {"Noop", func(*arguments) proto.Message { return &mp.NoopRequest{} }},
	"ping": {"Ping", func(a *arguments) proto.Message {
		return &mp.PingRequest{InstanceId: a.next().optional()}
	}},
	"clear": {"Clear", func(a *arguments) proto.Message { return &mp.ClearRequest{Force: a.next().truth()} }},
	"report_block_allocation": {"ReportBlockAllocation", func(a *arguments) proto.Message {
		a.frames = nil // what they say is not looked at
		return &mp.ReportBlockAllocationRequest{}
	}},

	"lookup": {"Lookup", func(a *arguments) proto.Message {
		return &mp.LookupRequest{Key: a.key(), TpSize: a.integer()}
	}},
	"query_prefetch_status": {"QueryPrefetchStatus", func(a *arguments) proto.Message {
		return &mp.QueryPrefetchStatusRequest{RequestId: a.next().text()}
	}},
	"wait_prefetch_status": {"WaitPrefetchStatus", func(a *arguments) proto.Message {
		return &mp.WaitPrefetchStatusRequest{RequestId: a.next().text(), Timeout: a.next().number()}
	}},
	"free_lookup_locks": {"FreeLookupLocks", func(a *arguments) proto.Message {
		q := &mp.FreeLookupLocksRequest{Key: a.key(), TpSize: a.integer()}
		if len(a.frames) > 0 {
			a.next().list(maxOpen, func(d *decoder) {
				r := d.integers(2)
				if len(r) != 2 {
					d.fail("a range of %d numbers", len(r))
					return
				}
				q.ExtraRanges = append(q.ExtraRanges, &mp.TokenRange{Start: r[0], End: r[1]})
			})
		}
		return q
	}},
	"end_session": {"EndSession", func(a *arguments) proto.Message {
		return &mp.EndSessionRequest{RequestId: a.next().text()}
	}},

	"register_kv_cache_engine_driven_context": {"RegisterKvCacheEngineDrivenContext", readRegistration},
	"unregister_kv_cache_engine_driven_context": {"UnregisterKvCacheEngineDrivenContext", func(a *arguments) proto.Message {
		return &mp.UnregisterKvCacheEngineDrivenContextRequest{InstanceId: a.integer()}
	}},
	"prepare_store": {"PrepareStore", func(a *arguments) proto.Message {
		q := &mp.PrepareStoreRequest{Key: a.key(), InstanceId: a.integer()}
		if len(a.frames) > 0 {
			a.next().list(maxGroups, func(d *decoder) {
				q.SkippedChunks = append(q.SkippedChunks, &mp.ChunkIndexList{Indices: d.integers(maxObjects)})
			})
		}
		return q
	}},
	"commit_store": {"CommitStore", func(a *arguments) proto.Message {
		return &mp.CommitStoreRequest{Key: a.key(), InstanceId: a.integer(), Data: a.next().bytes()}
	}},
	"prepare_retrieve": {"PrepareRetrieve", func(a *arguments) proto.Message {
		return &mp.PrepareRetrieveRequest{Key: a.key(), InstanceId: a.integer()}
	}},
	"commit_retrieve": {"CommitRetrieve", func(a *arguments) proto.Message {
		return &mp.CommitRetrieveRequest{Key: a.key(), InstanceId: a.integer()}
	}},

	"register_kv_cache": {"RegisterKvCache", func(a *arguments) proto.Message {
		a.frames = nil
		return &mp.RegisterKvCacheRequest{}
	}},
}

// numbered are the operations that have numbers.
var numbered = map[int]string{
	1: "register_kv_cache", 8: "lookup", 9: "query_prefetch_status", 10: "wait_prefetch_status", 12: "free_lookup_locks",
	13: "end_session", 14: "register_kv_cache_engine_driven_context", 15: "unregister_kv_cache_engine_driven_context",
	16: "prepare_store", 17: "commit_store", 18: "prepare_retrieve", 19: "commit_retrieve", 20: "clear",
	21: "get_chunk_size", 22: "ping", 23: "report_block_allocation", 24: "noop", 32: "get_experimental",
}

// errArguments reports a call that can't be read.
var errArguments = errors.New("lmcache: the call can't be read")

// readOperation reads which operation a call is about.
func readOperation(frame []byte) (string, error) {
	a := newArguments([][]byte{frame})
	d := a.next()
	var name string
	if t := msgp.NextType(d.rest); t == msgp.IntType || t == msgp.UintType {
		n := d.integer()
		if name = numbered[n]; name == "" {
			name = fmt.Sprint(n)
		}
	} else {
		name = d.text()
	}
	return name, d.err
}

// readCall reads the arguments of an operation, and the release that they show. What it returns has parts of the frames.
func readCall(op operation, frames [][]byte) (proto.Message, release, error) {
	a := newArguments(frames)
	q := op.read(a)
	if len(a.frames) > 0 {
		a.d.fail("%d arguments too many", len(a.frames))
	}
	return q, a.release, a.d.err
}

// arguments are the arguments of a call that were not read yet.
type arguments struct {
	d       decoder
	frames  [][]byte
	release release
}

func newArguments(frames [][]byte) *arguments {
	return &arguments{d: decoder{kind: errArguments}, frames: frames}
}

// next returns what reads the next argument.
func (a *arguments) next() *decoder {
	d := &a.d
	switch {
	case d.err != nil:
	case len(a.frames) == 0:
		d.fail("an argument is missing")
	default:
		if err := msgpackguard.Check(a.frames[0], msgpackguard.Limits{}); err != nil {
			d.fail("%v", err)
		}
		d.rest, a.frames = a.frames[0], a.frames[1:]
	}
	return d
}

func (a *arguments) integer() int64 { return int64(a.next().integer()) }

// key reads the key of a call, whose tokens have another name and form in each release.
func (a *arguments) key() *mp.IpcCacheServerKey {
	k := &mp.IpcCacheServerKey{}
	d := a.next()
	a.release = unknown
	d.open(func(name string) bool {
		switch name {
		case "model_name":
			k.ModelName = d.text()
		case "world_size":
			k.WorldSize = int64(d.integer())
		case "worker_id":
			k.WorkerId = d.optional()
		case "token_ids":
			k.Tokens, a.release = nil, since056
			for range d.array(maxTokens) {
				n := d.integer()
				if n < 0 {
					d.fail("token %d", n)
				}
				k.Tokens = protowire.AppendVarint(k.Tokens, uint64(n))
			}
		case "token_bytes":
			k.Tokens, a.release = d.bytes(), since057
		case "start":
			k.Start = int64(d.integer())
		case "end":
			k.End = int64(d.integer())
		case "request_id":
			k.RequestId = d.text()
		case "cache_salt":
			k.CacheSalt = d.text()
		case "request_configs":
			if !d.null() {
				k.EncodedRequestConfigs = d.raw()
			}
		case "num_kv_readers":
			k.NumKvReaders = int64(d.integer())
		default:
			return false
		}
		return true
	})
	if a.release == unknown {
		d.fail("a key without tokens")
	}
	return k
}

// readRegistration reads a registration. That of 0.5.7 always has a list of groups, which is empty if there is one.
func readRegistration(a *arguments) proto.Message {
	q := &mp.RegisterKvCacheEngineDrivenContextRequest{}
	d := a.next()
	a.release = since056
	d.open(func(name string) bool {
		switch name {
		case "instance_id":
			q.InstanceId = int64(d.integer())
		case "model_name":
			q.ModelName = d.text()
		case "world_size":
			q.WorldSize = int64(d.integer())
		case "block_size":
			q.BlockSize = int64(d.integer())
		case "num_layers":
			q.NumLayers = int64(d.integer())
		case "hidden_dim_size":
			q.HiddenDimSize = int64(d.integer())
		case "dtype_str":
			q.DtypeStr = d.text()
		case "use_mla":
			q.UseMla = d.truth()
		case "num_physical_slots":
			if n := d.optional(); n != nil {
				q.NumPhysicalSlots = *n
			}
		case "group_layouts":
			a.release = since057
			d.list(maxGroups, func(d *decoder) { q.GroupLayouts = append(q.GroupLayouts, readGroup(d)) })
		default:
			return false
		}
		return true
	})
	return q
}

func readGroup(d *decoder) *mp.GroupLayout {
	g := &mp.GroupLayout{}
	numbers := map[string]*int64{
		"num_layers": &g.NumLayers, "hidden_dim_size": &g.HiddenDimSize, "tokens_per_block": &g.TokensPerBlock,
		"window_tokens": &g.WindowTokens, "kv_size": &g.KvSize, "window_chunks": &g.WindowChunks,
	}
	d.open(func(name string) bool {
		switch n := numbers[name]; {
		case n != nil:
			*n = int64(d.integer())
		case name == "dtype_str":
			g.DtypeStr = d.text()
		case name == "recurrent":
			g.Recurrent = d.truth()
		default:
			return false
		}
		return true
	})
	return g
}

// appendAnswer appends the value of an answer for a client of a release; nothing if it has none.
func appendAnswer(b []byte, p proto.Message, r release) []byte {
	switch p := p.(type) {
	case *mp.GetChunkSizeResponse:
		b = msgp.AppendInt64(b, p.ChunkSize)
	case *mp.NegotiateChunkSizeResponse:
		b = msgp.AppendInt64(b, p.ChunkSize)
	case *mp.GetExperimentalResponse:
		b = msgp.AppendArrayHeader(b, uint32(len(p.Names)))
		for _, name := range p.Names {
			b = msgp.AppendString(b, name)
		}
	case *mp.NoopResponse:
		b = msgp.AppendString(b, p.Message)
	case *mp.PingResponse:
		b = msgp.AppendBool(b, p.Ok)
	case *mp.QueryPrefetchStatusResponse:
		b = appendCount(b, p.ChunkCount)
	case *mp.WaitPrefetchStatusResponse:
		b = appendCount(b, p.ChunkCount)
	case *mp.RegisterKvCacheEngineDrivenContextResponse:
		fields := uint32(2)
		if r == since057 {
			fields++
		}
		b = msgp.AppendMapHeader(b, fields)
		b = msgp.AppendString(b, "shm_name")
		b = msgp.AppendString(b, p.ShmName)
		b = msgp.AppendString(b, "pool_size")
		b = msgp.AppendInt64(b, p.PoolSize)
		if r == since057 {
			b = msgp.AppendString(b, "null_block_id")
			b = msgp.AppendInt64(b, p.NullBlockId)
		}
	case *mp.PrepareStoreResponse:
		b = msgp.AppendMapHeader(b, 1)
		b = appendPlaces(b, p.EncodedContext)
	case *mp.CommitStoreResponse:
		b = msgp.AppendBool(b, p.Success)
	case *mp.PrepareRetrieveResponse:
		b = msgp.AppendMapHeader(b, 3)
		b = msgp.AppendString(b, "success")
		b = msgp.AppendBool(b, p.Success)
		b = msgp.AppendString(b, "data")
		b = msgp.AppendBytes(b, p.Data)
		b = appendPlaces(b, p.EncodedContext)
	case *mp.CommitRetrieveResponse:
		b = msgp.AppendBool(b, p.Success)
	}
	return b
}

func appendCount(b []byte, n *int64) []byte {
	if n == nil { // pending
		return b
	}
	return msgp.AppendInt64(b, *n)
}

// appendPlaces appends the context of an answer, which is a map already.
func appendPlaces(b, context []byte) []byte {
	b = msgp.AppendString(b, "context")
	if len(context) == 0 {
		return msgp.AppendMapHeader(b, 0)
	}
	return append(b, context...)
}

// appendError appends what stands in place of the operation in an answer that is an error: LMCache's own servers do
// not answer then, and a client raises an error with the text of an operation that is not the one of its call.
func appendError(b []byte, err error) []byte {
	const most = 1000
	text := err.Error()
	return msgp.AppendString(b, text[:min(len(text), most)])
}
