//go:build linux

package main

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/tinylib/msgp/msgp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/ringcache/ringcache/daemon/internal/lmcache/mp"
)

// bareBytes are the bytes of the file in which the bare server lets engines write.
const bareBytes = 64 << 20

// bare serves a socket with gRPC's own server, whose handlers read no message and answer with bytes that were made
// before: the least that a call can take over gRPC in Go. pool is a file in /dev/shm, parts of which each store is told
// to fill, and tokens those of a chunk.
func bare(socket, pool, tokens string) error {
	chunk, err := strconv.Atoi(tokens)
	if err != nil {
		return err
	}
	size, found, slots := chunk*callHidden*4, foundChunks, promptChunks-foundChunks
	if chunk == lookupChunk {
		size, found, slots = chunk*lookupHidden*4, lookupChunks, storeChunks
	}
	if err := os.WriteFile(filepath.Join("/dev/shm", pool), nil, 0o600); err != nil {
		return err
	}
	if err := os.Truncate(filepath.Join("/dev/shm", pool), bareBytes); err != nil {
		return err
	}
	stores := make([]proto.Message, bareBytes/(size*slots))
	for i := range stores {
		stores[i] = &mp.PrepareStoreResponse{EncodedContext: bareSlots(i*size*slots, size, slots)}
	}
	answers := map[string][][]byte{}
	for name, list := range map[string][]proto.Message{
		"NegotiateChunkSize":                 {&mp.NegotiateChunkSizeResponse{ChunkSize: int64(chunk)}},
		"RegisterKvCacheEngineDrivenContext": {&mp.RegisterKvCacheEngineDrivenContextResponse{ShmName: pool, PoolSize: bareBytes}},
		"QueryPrefetchStatus":                {&mp.QueryPrefetchStatusResponse{ChunkCount: proto.Int64(int64(found))}},
		"PrepareStore":                       stores,
		"CommitStore":                        {&mp.CommitStoreResponse{Success: true}},
	} {
		for _, m := range list {
			b, err := proto.Marshal(m)
			if err != nil {
				return err
			}
			answers[name] = append(answers[name], b)
		}
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	var calls atomic.Uint64 // so that stores of several engines are told to fill different parts
	return grpc.NewServer(grpc.ForceServerCodecV2(bytesCodec{}), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		if err := stream.RecvMsg(nil); err != nil {
			return err
		}
		method, _ := grpc.MethodFromServerStream(stream)
		var answer []byte
		if list := answers[method[strings.LastIndexByte(method, '/')+1:]]; len(list) > 0 {
			answer = list[calls.Add(1)%uint64(len(list))]
		}
		return stream.SendMsg(answer)
	})).Serve(l)
}

// bareSlots is the context of a store of some objects, from an offset on.
func bareSlots(offset, size, n int) []byte {
	b := msgp.AppendMapHeader(nil, 1)
	b = msgp.AppendString(b, "slots")
	b = msgp.AppendArrayHeader(b, uint32(n))
	for i := range n {
		b = msgp.AppendMapHeader(b, 2)
		b = msgp.AppendString(b, "offset")
		b = msgp.AppendInt(b, offset+i*size)
		b = msgp.AppendString(b, "length")
		b = msgp.AppendInt(b, size)
	}
	return b
}

// bytesCodec reads nothing, and writes bytes as they are.
type bytesCodec struct{}

// Name implements encoding.CodecV2.
func (bytesCodec) Name() string { return "proto" }

// Marshal implements encoding.CodecV2.
func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

// Unmarshal implements encoding.CodecV2.
func (bytesCodec) Unmarshal(mem.BufferSlice, any) error { return nil }
