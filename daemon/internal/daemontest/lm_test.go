//go:build linux

package daemontest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"testing"

	"github.com/ringcache/ringcache/daemon/internal/sessionless"
	"github.com/ringcache/ringcache/lmcache/lm"
	"github.com/ringcache/ringcache/tier"
)

var (
	lmKillCount = flag.Int("lm.kills", 12, "TestLMKills kills so many daemons")
	lmKillSeed  = flag.Uint64("lm.kills.seed", 0, "seed of TestLMKills; 0 makes one up")

	lmLieCount = flag.Int("lm.lies", 4000, "TestLMLies sends so many lying requests")
	lmLieSeed  = flag.Uint64("lm.lies.seed", 0, "seed of TestLMLies; 0 makes one up")
)

func TestLMKills(t *testing.T) {
	killServersOfValues(t, protocolLM, *lmKillCount, seedOf(t, "lm.kills.seed", *lmKillSeed))
}

func TestLMLies(t *testing.T) {
	lieToServerOfValues(t, protocolLM, *lmLieCount, seedOf(t, "lm.lies.seed", *lmLieSeed))
}

// lmProtocol is lm://. A value's description, which is its shape, says which one it is.
var lmProtocol = valueProtocol{
	space: lm.Space,
	grace: patience,
	serve: func(p *sessionless.Protocol, _ *tier.Store, log *slog.Logger) (server, int, error) {
		s, err := lm.NewServer(lm.Options{
			Open:           func(raw net.Conn, end func()) (lm.Store, error) { return p.Enter(raw, end) },
			MaxConnections: math.MaxInt, Logger: log,
		})
		return s, 0, err
	},
	dial: func(socket string, _ int) valueConn {
		return lmConn{lm.NewClient(lm.ClientOptions{Address: "unix://" + socket})}
	},
	lies: func(rng *rand.Rand) lyingConn {
		return &lmLies{rng, []lm.Form{lm.Located, lm.Located, lm.Typed, lm.Untyped}[rng.IntN(4)]}
	},
}

type lmConn struct{ c *lm.Client }

func (c lmConn) close() { _ = c.c.Close() }

func (c lmConn) put(ctx context.Context, key string, v versioned) (refused bool, err error) {
	return false, c.c.Put(ctx, key, lm.Meta{Format: 1, DType: 3, Shape: [4]int32{v.n, v.version}}, v.bytes())
}

func (c lmConn) exists(ctx context.Context, key string) (bool, error) { return c.c.Exists(ctx, key) }

func (c lmConn) get(ctx context.Context, key string) (v versioned, b []byte, found bool, err error) {
	p, b, err := c.c.Get(ctx, key, nil)
	if errors.Is(err, lm.ErrMiss) {
		return v, nil, false, nil
	}
	return versioned{p.Meta.Shape[0], p.Meta.Shape[1]}, b, err == nil, err
}

// lmLies has requests of one form.
type lmLies struct {
	rng  *rand.Rand
	form lm.Form
}

// judge looks whether answers are whole replies of one form: that of the first request, if it could be read.
func (l *lmLies) judge(got []byte, cut bool) error {
	for _, f := range []lm.Form{l.form, lm.Located, lm.Typed, lm.Untyped} {
		if whole(f, got, cut) {
			return nil
		}
	}
	return fmt.Errorf("%d bytes are no replies: %x", len(got), got[:min(len(got), 72)])
}

// whole reports whether bytes are replies, of which the last one may be cut off.
func whole(f lm.Form, b []byte, cut bool) bool {
	for len(b) > 0 {
		if len(b) < f.ReplySize() {
			return cut
		}
		p, err := f.DecodeReply(b[:f.ReplySize()])
		if err != nil {
			return false
		}
		b = b[f.ReplySize():]
		if len(b) < int(p.Length) {
			return cut
		}
		b = b[p.Length:]
	}
	return true
}

func (l *lmLies) request() []byte {
	q := lm.Request{
		Command: lm.Command(1 + l.rng.IntN(5)),
		Key:     fmt.Sprintf("lies%d@1@0@%x@half", l.rng.IntN(2), l.rng.IntN(20)),
		Meta: lm.Meta{
			Format: l.rng.Int32N(9), DType: l.rng.Int32N(9), Shape: [4]int32{l.rng.Int32(), -1, 0, l.rng.Int32N(100)},
		},
	}
	var value []byte
	if q.Command == lm.Put {
		value = bytes.Repeat([]byte{byte(l.rng.Uint32())}, l.rng.IntN(1<<l.rng.IntN(17)))
		q.Length = int32(len(value))
	}
	b, err := l.form.AppendRequest(nil, &q)
	if err != nil {
		panic(err)
	}
	switch l.rng.IntN(8) {
	case 0: // a number that is none, or one at which something begins or ends
		list := []int32{0, -1, 1, 6, 9, 1 << 20, 1<<31 - 1, -1 << 31, l.rng.Int32()}
		at := 4 * l.rng.IntN(l.form.ReplySize()/4)
		binary.LittleEndian.PutUint32(b[at:], uint32(list[l.rng.IntN(len(list))]))
	case 1:
		for range 1 + l.rng.IntN(4) {
			b[l.rng.IntN(len(b))] ^= 1 << l.rng.IntN(8)
		}
	case 2: // another length than the value's
		binary.LittleEndian.PutUint32(b[4:], uint32(l.rng.IntN(1<<l.rng.IntN(31))))
	}
	return append(b, value...)
}
