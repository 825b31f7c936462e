//go:build linux

package daemontest

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ringcache/ringcache/daemon/internal/kvload"
	"github.com/ringcache/ringcache/daemon/internal/lmcache/mp"
)

var (
	kvLieCount = flag.Int("kv.lies", 4000, "TestKVLies sends so many lying calls")
	kvLieSeed  = flag.Uint64("kv.lies.seed", 0, "seed of TestKVLies; 0 makes one up")
)

// TestKVLies lets processes lie to a server of LMCache's protocol. Engines beside them load right bytes and all that
// look-ups have found; no call of a worker is answered with an error; what the server takes is bounded, and nothing
// is held when the liars have gone.
func TestKVLies(t *testing.T) {
	seed := seedOf(t, "kv.lies.seed", *kvLieSeed)
	d := daemonRole{Protocol: protocolKV, Dir: folder(t), Size: 64 << 20, Grace: patience}
	engines := role{KVClient: &kvClientRole{
		Target: "unix:" + d.socket(), Dir: d.Dir, Prompts: 64, Sessions: 1, Seed: seed,
	}}
	d.surviveLies(t, engines, *kvLieCount, func(i uint64, lies int) role {
		return role{KVLiar: &kvLiarRole{Target: "unix:" + d.socket(), Calls: lies, Seed: seed + i}}
	}, 64<<20, 256<<20) // liars have messages of at most 64 KiB
}

// kvLiarRole is a process of clients that lie. It prints its counts.
type kvLiarRole struct {
	Target string
	Calls  int
	Seed   uint64
}

func (r *kvLiarRole) run() {
	runLiars(r.Calls, func(i uint64, n int, counts map[string]int) error {
		l := &kvLiar{target: r.Target, rng: rand.New(rand.NewPCG(r.Seed, i)), counts: counts}
		for range n {
			if err := l.lie(); err != nil {
				return err
			}
		}
		return l.conn.Close()
	})
}

// kvLiar is one lying client.
type kvLiar struct {
	target string
	rng    *rand.Rand
	conn   *grpc.ClientConn
	ids    [4]string
	counts map[string]int
}

// kvLies are the methods, each with a message that is right as far as its type goes.
var kvLies = map[string]func(l *kvLiar) proto.Message{
	"ControllerService/GetChunkSize": func(*kvLiar) proto.Message { return &mp.GetChunkSizeRequest{} },
	"ManagementService/NegotiateChunkSize": func(l *kvLiar) proto.Message {
		return &mp.NegotiateChunkSizeRequest{RequiredChunkAlignment: l.number()}
	},
	"ManagementService/Ping": func(l *kvLiar) proto.Message {
		n := l.number()
		return &mp.PingRequest{InstanceId: &n}
	},
	"LookupService/Lookup": func(l *kvLiar) proto.Message { return &mp.LookupRequest{Key: l.key(), TpSize: l.number()} },
	"LookupService/QueryPrefetchStatus": func(l *kvLiar) proto.Message {
		return &mp.QueryPrefetchStatusRequest{RequestId: l.request()}
	},
	"LookupService/WaitPrefetchStatus": func(l *kvLiar) proto.Message {
		return &mp.WaitPrefetchStatusRequest{RequestId: l.request(), Timeout: []float64{0, -1, 0.001}[l.rng.IntN(3)]}
	},
	"LookupService/FreeLookupLocks": func(l *kvLiar) proto.Message {
		q := &mp.FreeLookupLocksRequest{Key: l.key(), TpSize: l.number()}
		for range l.rng.IntN(3) {
			q.ExtraRanges = append(q.ExtraRanges, &mp.TokenRange{Start: l.number(), End: l.number()})
		}
		return q
	},
	"LookupService/EndSession": func(l *kvLiar) proto.Message { return &mp.EndSessionRequest{RequestId: l.request()} },
	"EngineDrivenService/RegisterKvCacheEngineDrivenContext": func(l *kvLiar) proto.Message {
		q := &mp.RegisterKvCacheEngineDrivenContextRequest{
			InstanceId: l.instance(), ModelName: l.model(), WorldSize: l.oneOf(1, 2, 3), BlockSize: l.oneOf(16, 8, 0), NumLayers: l.oneOf(1, 4),
			HiddenDimSize: l.oneOf(16, 8), DtypeStr: []string{"float32", "bfloat16", "float31", ""}[l.rng.IntN(4)], UseMla: l.rng.IntN(2) == 0,
		}
		for range l.rng.IntN(4) {
			q.GroupLayouts = append(q.GroupLayouts, &mp.GroupLayout{
				NumLayers: l.oneOf(1, 2), HiddenDimSize: l.oneOf(8, 16), DtypeStr: "float32", TokensPerBlock: l.oneOf(16, 1), WindowTokens: l.oneOf(0, 16),
				KvSize: l.oneOf(0, 1, 2), WindowChunks: l.oneOf(0, 1, 5), Recurrent: l.rng.IntN(4) == 0,
			})
		}
		return q
	},
	"EngineDrivenService/UnregisterKvCacheEngineDrivenContext": func(l *kvLiar) proto.Message {
		return &mp.UnregisterKvCacheEngineDrivenContextRequest{InstanceId: l.instance()}
	},
	"EngineDrivenService/PrepareStore": func(l *kvLiar) proto.Message {
		q := &mp.PrepareStoreRequest{Key: l.key(), InstanceId: l.instance()}
		for range l.rng.IntN(3) {
			q.SkippedChunks = append(q.SkippedChunks, &mp.ChunkIndexList{Indices: []int64{l.number(), l.number()}})
		}
		return q
	},
	"EngineDrivenService/CommitStore": func(l *kvLiar) proto.Message {
		q := &mp.CommitStoreRequest{Key: l.key(), InstanceId: l.instance()}
		if l.rng.IntN(2) == 0 {
			q.Data = l.noise(l.rng.IntN(4096))
		}
		return q
	},
	"EngineDrivenService/PrepareRetrieve": func(l *kvLiar) proto.Message {
		return &mp.PrepareRetrieveRequest{Key: l.key(), InstanceId: l.instance()}
	},
	"EngineDrivenService/CommitRetrieve": func(l *kvLiar) proto.Message {
		return &mp.CommitRetrieveRequest{Key: l.key(), InstanceId: l.instance()}
	},
	"LMCacheDrivenService/RegisterKvCache": func(*kvLiar) proto.Message { return &mp.RegisterKvCacheRequest{} },
	"KVEventService/SubscribeKvEvents":     func(*kvLiar) proto.Message { return &mp.NoopRequest{} },
}

var kvLieNames = slices.Sorted(maps.Keys(kvLies))

func (l *kvLiar) oneOf(list ...int64) int64 {
	if l.rng.IntN(10) == 0 {
		return l.number()
	}
	return list[l.rng.IntN(len(list))]
}

// number is any one, mostly one at which something begins or ends.
func (l *kvLiar) number() int64 {
	list := []int64{0, 1, 15, 16, 17, 32, 64, 160, 256, 1 << 16, 16 << 20, 1<<31 - 1, 1 << 31, 1 << 32, 1<<63 - 1, -1, -16, -1 << 63}
	if l.rng.IntN(4) == 0 {
		return int64(l.rng.Uint64())
	}
	return list[l.rng.IntN(len(list))]
}

func (l *kvLiar) noise(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(l.rng.Uint32())
	}
	return b
}

// model is seldom one of the honest engines': a lie about their geometry is an engine that differs, for which nothing
// is to be found.
func (l *kvLiar) model() string {
	return []string{"lies", "lies", "more lies", "", "\xff\x00"}[l.rng.IntN(4)]
}

func (l *kvLiar) instance() int64 { return l.oneOf(1, 2, 3, 4, 5, 6) }

// request is often one of the honest engines'.
func (l *kvLiar) request() string {
	if l.rng.IntN(20) == 0 {
		return strings.Repeat("r", l.rng.IntN(2000))
	}
	return fmt.Sprint("req-", l.rng.IntN(200))
}

// key is mostly one of tokens that others have, so that liars meet.
func (l *kvLiar) key() *mp.IpcCacheServerKey {
	if l.rng.IntN(50) == 0 {
		return nil
	}
	to := l.rng.Int64N(20) * 16
	k := &mp.IpcCacheServerKey{
		ModelName: l.model(), WorldSize: l.oneOf(1, 2), Start: l.oneOf(0, 0, 16, 32, to), End: l.oneOf(to, to, to-1, to+1), RequestId: l.request(),
		NumKvReaders: l.oneOf(0, 1, 2, 300),
	}
	if l.rng.IntN(2) == 0 {
		n := l.oneOf(0, 0, 1)
		k.WorkerId = &n
	}
	if l.rng.IntN(3) == 0 {
		k.CacheSalt = strings.Repeat("s", l.rng.IntN(200))
	}
	switch l.rng.IntN(4) {
	case 0:
		k.Tokens = l.noise(l.rng.IntN(2000))
	default:
		for i := range max(0, to) {
			k.Tokens = append(k.Tokens, 0, 0, byte(l.rng.IntN(2)), byte(i))
		}
	}
	if l.rng.IntN(4) == 0 {
		k.EncodedRequestConfigs = l.noise(l.rng.IntN(40))
	}
	return k
}

// bytesCodec sends bytes as they are.
type bytesCodec struct{}

func (bytesCodec) Name() string                  { return "proto" }
func (bytesCodec) Marshal(v any) ([]byte, error) { return v.([]byte), nil }
func (bytesCodec) Unmarshal(b []byte, v any) error {
	*v.(*[]byte) = slices.Clone(b)
	return nil
}

// lie makes one call, and judges that it is answered, and how.
func (l *kvLiar) lie() error {
	if l.conn == nil || l.rng.IntN(2000) == 0 {
		if l.conn != nil {
			_ = l.conn.Close()
		}
		var err error
		if l.conn, err = grpc.NewClient(l.target, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
			return err
		}
		for i := range l.ids {
			l.ids[i] = string(l.noise(16))
		}
	}
	method := kvLieNames[l.rng.IntN(len(kvLieNames))]
	q := kvLies[method](l)
	b, err := proto.Marshal(q)
	sound := err == nil
	if !sound { // a text that is no UTF-8
		b = l.noise(40)
	}
	if l.rng.IntN(4) == 0 && len(b) > 0 {
		sound = false
		switch l.rng.IntN(3) {
		case 0:
			b = b[:l.rng.IntN(len(b))]
		case 1:
			for range 1 + l.rng.IntN(4) {
				b[l.rng.IntN(len(b))] ^= 1 << l.rng.IntN(8)
			}
		default:
			b = append(b, l.noise(l.rng.IntN(64))...)
		}
	}
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	switch l.rng.IntN(100) {
	case 0: // no ID
		sound = false
	case 1:
		sound = false
		ctx = metadata.AppendToOutgoingContext(ctx, "lmcache-client-id-bin", string(l.noise(l.rng.IntN(40))))
	case 2: // whose answer nobody waits for
		sound = false
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(l.rng.IntN(500))*time.Microsecond)
		defer cancel()
		fallthrough
	default:
		ctx = metadata.AppendToOutgoingContext(ctx, "lmcache-client-id-bin", l.ids[l.rng.IntN(len(l.ids))])
	}
	var p []byte
	err = l.conn.Invoke(ctx, "/lmcache.mp."+method, b, &p, grpc.ForceCodec(bytesCodec{}), grpc.WaitForReady(true))
	code := status.Code(err)
	l.counts[fmt.Sprint(method, " ", code)]++
	_, name, _ := strings.Cut(method, "/")
	switch {
	case kvload.Lost(err):
		return fmt.Errorf("%s: %w", method, err)
	case sound && err != nil && (strings.HasPrefix(name, "Prepare") || strings.HasPrefix(name, "Commit") || strings.HasSuffix(name, "PrefetchStatus")):
		return fmt.Errorf("%s, which ends an engine: %w", method, err)
	case code == codes.DeadlineExceeded && sound, code == codes.Internal && sound:
		return fmt.Errorf("%s: %w", method, err)
	}
	return nil
}
