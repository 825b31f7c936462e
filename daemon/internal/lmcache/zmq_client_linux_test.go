package lmcache

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
	"unicode"

	"github.com/go-zeromq/zmq4"
	"github.com/stretchr/testify/require"
	"github.com/tinylib/msgp/msgp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/ringcache/ringcache/daemon/internal/lmcache/mp"
	"github.com/ringcache/ringcache/internal/zmtp"
)

// zmqConn is a client by ZMQ, which connects again when it has to.
type zmqConn struct {
	*bed
	address string
	c       *zmtp.Conn
	number  uint64
}

func (z *zmqConn) Close() error {
	if z.c == nil {
		return nil
	}
	c := z.c
	z.c = nil
	return c.Close()
}

// dial returns a connection that has greeted.
func (z *zmqConn) dial() (*zmtp.Conn, error) {
	network, address := "tcp", strings.TrimPrefix(z.address, "passthrough:///")
	if path, unix := strings.CutPrefix(address, "unix:"); unix {
		network, address = "unix", path
	}
	raw, err := net.Dial(network, address)
	if err != nil {
		return nil, err
	}
	c := zmtp.New(raw, zmtp.Options{MaxMessage: 2 << 30, SendTimeout: time.Minute})
	if _, err := c.Greet(zmq4.Dealer, time.Minute); err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	return c, nil
}

// exchange sends frames and returns those of the answer. It connects, and connects again, until that succeeds.
func (z *zmqConn) exchange(frames ...[]byte) (answer [][]byte) {
	z.Helper()
	z.eventually("there is an answer", func() bool {
		var err error
		if z.c == nil {
			if z.c, err = z.dial(); err != nil {
				return false
			}
		}
		if err = z.c.Send(frames); err == nil {
			answer, err = z.c.Receive()
		}
		if err != nil {
			_ = z.Close()
		}
		return err == nil
	})
	z.c.Keep()
	return answer
}

// call makes a call of gRPC by ZMQ.
func (z *zmqConn) call(method string, q, p proto.Message, r release) error {
	z.Helper()
	_, name, _ := strings.Cut(method, "/")
	z.number++
	number := msgp.AppendUint64(nil, z.number)
	op := operationOf(name)
	answer := z.exchange(append([][]byte{number, op}, argumentsOf(z, q, r)...)...)
	require.GreaterOrEqual(z, len(answer), 2)
	require.Equal(z, number, answer[0])
	if string(answer[1]) != string(op) {
		text, rest, err := msgp.ReadStringBytes(answer[1])
		require.NoError(z, err)
		require.Empty(z, rest)
		return errors.New(text)
	}
	readAnswer(z, answer[2:], p)
	return nil
}

// raw makes a call with the bytes of one of gRPC.
func (z *zmqConn) raw(method string, b []byte, r release) ([]byte, error) {
	z.Helper()
	name := method[strings.LastIndexByte(method, '/')+1:]
	q, p := methods[name].request(), answersOf[name]()
	require.NoError(z, proto.Unmarshal(b, q))
	if err := z.call(strings.TrimPrefix(method, "/lmcache.mp."), q, p, r); err != nil {
		return nil, err
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(p)
}

// answersOf are the types of answers.
var answersOf = map[string]func() proto.Message{
	"Clear":                                func() proto.Message { return &mp.ClearResponse{} },
	"GetChunkSize":                         func() proto.Message { return &mp.GetChunkSizeResponse{} },
	"NegotiateChunkSize":                   func() proto.Message { return &mp.NegotiateChunkSizeResponse{} },
	"GetExperimental":                      func() proto.Message { return &mp.GetExperimentalResponse{} },
	"Noop":                                 func() proto.Message { return &mp.NoopResponse{} },
	"Ping":                                 func() proto.Message { return &mp.PingResponse{} },
	"ReportBlockAllocation":                func() proto.Message { return &mp.ReportBlockAllocationResponse{} },
	"Lookup":                               func() proto.Message { return &mp.LookupResponse{} },
	"QueryPrefetchStatus":                  func() proto.Message { return &mp.QueryPrefetchStatusResponse{} },
	"WaitPrefetchStatus":                   func() proto.Message { return &mp.WaitPrefetchStatusResponse{} },
	"FreeLookupLocks":                      func() proto.Message { return &mp.FreeLookupLocksResponse{} },
	"EndSession":                           func() proto.Message { return &mp.EndSessionResponse{} },
	"RegisterKvCacheEngineDrivenContext":   func() proto.Message { return &mp.RegisterKvCacheEngineDrivenContextResponse{} },
	"UnregisterKvCacheEngineDrivenContext": func() proto.Message { return &mp.UnregisterKvCacheEngineDrivenContextResponse{} },
	"PrepareStore":                         func() proto.Message { return &mp.PrepareStoreResponse{} },
	"CommitStore":                          func() proto.Message { return &mp.CommitStoreResponse{} },
	"PrepareRetrieve":                      func() proto.Message { return &mp.PrepareRetrieveResponse{} },
	"CommitRetrieve":                       func() proto.Message { return &mp.CommitRetrieveResponse{} },
	"RegisterKvCache":                      func() proto.Message { return &mp.RegisterKvCacheResponse{} },
}

// operationOf is the frame of an operation: its number, if it has one.
func operationOf(method string) []byte {
	text := textOf(method)
	for n, t := range numbered {
		if t == text {
			return msgp.AppendInt(nil, n)
		}
	}
	return msgp.AppendString(nil, text)
}

// textOf is the text of the operation of a method.
func textOf(method string) string {
	var b strings.Builder
	for i, r := range method {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// argumentsOf are the frames of a request of gRPC: one for each field, but that a registration is one map.
func argumentsOf(t require.TestingT, q proto.Message, r release) (frames [][]byte) {
	m := q.ProtoReflect()
	if m.Descriptor().Name() == "RegisterKvCacheEngineDrivenContextRequest" {
		return [][]byte{appendFields(t, nil, m, r)}
	}
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		if f := fields.Get(i); r != since056 || f.Name() != "extra_ranges" && f.Name() != "skipped_chunks" {
			frames = append(frames, appendField(t, nil, m, f, r))
		}
	}
	return frames
}

// appendFields appends a message as a map.
func appendFields(t require.TestingT, b []byte, m protoreflect.Message, r release) []byte {
	fields := m.Descriptor().Fields()
	var all []protoreflect.FieldDescriptor
	for i := range fields.Len() {
		if f := fields.Get(i); r != since056 || f.Name() != "group_layouts" {
			all = append(all, f)
		}
	}
	b = msgp.AppendMapHeader(b, uint32(len(all)))
	for _, f := range all {
		switch {
		case f.Name() == "tokens" && r == since056:
			b = msgp.AppendString(b, "token_ids")
			var ids []uint64
			for p := m.Get(f).Bytes(); len(p) > 0; {
				v, n := protowire.ConsumeVarint(p)
				if n < 0 { // a test that sends what is no varint
					break
				}
				ids, p = append(ids, v), p[n:]
			}
			b = msgp.AppendArrayHeader(b, uint32(len(ids)))
			for _, v := range ids {
				b = msgp.AppendUint64(b, v)
			}
		case f.Name() == "tokens":
			b = msgp.AppendString(b, "token_bytes")
			b = msgp.AppendBytes(b, m.Get(f).Bytes())
		case f.Name() == "encoded_request_configs":
			b = msgp.AppendString(b, "request_configs")
			if !m.Has(f) {
				b = msgp.AppendNil(b)
			} else {
				b = append(b, m.Get(f).Bytes()...)
			}
		default:
			b = msgp.AppendString(b, string(f.Name()))
			b = appendField(t, b, m, f, r)
		}
	}
	return b
}

func appendField(t require.TestingT, b []byte, m protoreflect.Message, f protoreflect.FieldDescriptor, r release) []byte {
	switch {
	case f.IsList():
		list := m.Get(f).List()
		b = msgp.AppendArrayHeader(b, uint32(list.Len()))
		for i := range list.Len() {
			switch e := list.Get(i); f.Name() {
			case "group_layouts":
				b = appendFields(t, b, e.Message(), r)
			case "extra_ranges":
				x := e.Message().Interface().(*mp.TokenRange)
				b = msgp.AppendArrayHeader(b, 2)
				b = msgp.AppendInt64(msgp.AppendInt64(b, x.Start), x.End)
			case "skipped_chunks":
				x := e.Message().Interface().(*mp.ChunkIndexList)
				b = msgp.AppendArrayHeader(b, uint32(len(x.Indices)))
				for _, n := range x.Indices {
					b = msgp.AppendInt64(b, n)
				}
			default:
				require.Fail(t, "a list", f.Name())
			}
		}
		return b
	case f.HasPresence() && f.Kind() != protoreflect.MessageKind && !m.Has(f):
		return msgp.AppendNil(b)
	}
	v := m.Get(f)
	switch f.Kind() {
	case protoreflect.BoolKind:
		return msgp.AppendBool(b, v.Bool())
	case protoreflect.Int64Kind:
		if v.Int() > 0 {
			return msgp.AppendUint64(b, uint64(v.Int()))
		}
		return msgp.AppendInt64(b, v.Int())
	case protoreflect.DoubleKind:
		return msgp.AppendFloat64(b, v.Float())
	case protoreflect.StringKind:
		return msgp.AppendString(b, v.String())
	case protoreflect.BytesKind:
		return msgp.AppendBytes(b, v.Bytes())
	case protoreflect.MessageKind:
		return appendFields(t, b, v.Message(), r)
	}
	require.Fail(t, "a field", f.Name())
	return nil
}

// readAnswer reads the value of an answer.
func readAnswer(t require.TestingT, frames [][]byte, p proto.Message) {
	proto.Reset(p)
	m := p.ProtoReflect()
	fields := m.Descriptor().Fields()
	if len(frames) == 0 {
		require.True(t, fields.Len() == 0 || fields.Get(0).Name() == "chunk_count", "no value")
		return
	}
	require.Len(t, frames, 1)
	v, rest, err := msgp.ReadIntfBytes(frames[0])
	require.NoError(t, err)
	require.Empty(t, rest)
	values, ok := v.(map[string]any)
	if !ok {
		require.Equal(t, 1, fields.Len())
		values = map[string]any{string(fields.Get(0).Name()): v}
	}
	for name, v := range values {
		if name == "context" {
			name = "encoded_context"
			if len(v.(map[string]any)) == 0 {
				continue
			}
			v = contextBytes(frames[0])
		}
		f := fields.ByName(protoreflect.Name(name))
		require.NotNil(t, f, name)
		switch v := v.(type) {
		case []byte:
			if len(v) > 0 {
				m.Set(f, protoreflect.ValueOfBytes(v))
			}
		case int64, uint64, bool, string:
			if n, is := v.(uint64); is {
				m.Set(f, protoreflect.ValueOfInt64(int64(n)))
			} else {
				m.Set(f, protoreflect.ValueOf(v))
			}
		case []any:
			for _, x := range v {
				m.Mutable(f).List().Append(protoreflect.ValueOf(x))
			}
		default:
			require.Fail(t, fmt.Sprintf("%s: %T", name, v))
		}
	}
}

// contextBytes is the context of an answer, which is its last field, as it came.
func contextBytes(frame []byte) []byte {
	d := decoder{rest: frame}
	var out []byte
	d.open(func(name string) bool {
		if name == "context" {
			out = d.raw()
		}
		return name == "context"
	})
	return out
}

// greeting is what a client says at first, of a kind of socket.
func greeting(kind string) string {
	first := make([]byte, 64)
	first[0], first[9], first[10] = 0xff, 0x7f, 3
	copy(first[12:], "NULL")
	ready := "\x05READY\x0bSocket-Type" + string(binary.BigEndian.AppendUint32(nil, uint32(len(kind)))) + kind
	return string(first) + "\x04" + string(rune(len(ready))) + ready
}
