package lmcache

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ringcache/ringcache/daemon/internal/lmcache/mp"
)

// release is the release of LMCache that a client has: what it calls decides how its tokens are to be read.
type release int

const (
	unknown  release = iota
	since056         // 0.5.6 and, as far as the same, 0.5.5
	since057         // 0.5.7
)

func (r release) String() string {
	switch r {
	case since056:
		return "0.5.6"
	case since057:
		return "0.5.7"
	default:
		return "unknown"
	}
}

// Bounds of what a client may say.
const (
	maxModel   = 4096     // bytes
	maxRequest = 1024     // bytes
	maxSalt    = 128      // characters are LMCache's bound, these are bytes: what is longer is refused
	maxTokens  = 16 << 20 // of a request
	maxWorld   = 255      // workers, as in a kv_rank
)

// allWorkers is the worker of a key from the scheduler.
const allWorkers = -1

// rangeKey is what a call is about.
type rangeKey struct {
	model    string
	world    int
	worker   int    // or allWorkers
	tokens   []byte // four bytes each, big-endian
	from, to int    // tokens
	request  string
	salt     string
	skipLoad bool // the request wants nothing loaded
	computed int  // tokens that the engine has itself, by its own account
	readers  int
}

// errUndecided reports tokens of a client whose release is not known.
var errUndecided = errors.New("it is not known which release of LMCache the client has")

// parseKey reads a key of a client of a release.
func parseKey(k *mp.IpcCacheServerKey, r release) (rangeKey, error) {
	out := rangeKey{
		model: k.GetModelName(), world: int(k.GetWorldSize()), worker: allWorkers,
		request: k.GetRequestId(), salt: k.GetCacheSalt(),
		readers: int(max(1, min(k.GetNumKvReaders(), maxWorld))),
	}
	invalid := func(text string, args ...any) (rangeKey, error) {
		return rangeKey{}, fmt.Errorf("lmcache: key: "+text+": %w", append(args, fs.ErrInvalid)...)
	}
	switch {
	case k == nil:
		return invalid("there is none")
	case out.model == "" || len(out.model) > maxModel:
		return invalid("the model's name has %d bytes, of 1 to %d", len(out.model), maxModel)
	case len(out.request) > maxRequest:
		return invalid("the request's ID has %d bytes, and %d are the most", len(out.request), maxRequest)
	case len(out.salt) > maxSalt:
		return invalid("the salt has %d bytes, and %d are the most", len(out.salt), maxSalt)
	case k.GetWorldSize() < 1 || k.GetWorldSize() > maxWorld:
		return invalid("world_size is %d, of 1 to %d", k.GetWorldSize(), maxWorld)
	}
	if k.WorkerId != nil {
		if *k.WorkerId < 0 || *k.WorkerId >= k.WorldSize {
			return invalid("worker_id is %d, and there are %d workers", *k.WorkerId, k.WorldSize)
		}
		out.worker = int(*k.WorkerId)
	}
	if k.Start < 0 || k.End < 0 || k.End > maxTokens {
		return invalid("the range is %d to %d, within 0 to %d", k.Start, k.End, maxTokens)
	}
	out.from, out.to = int(min(k.Start, k.End)), int(k.End)
	var err error
	if out.tokens, err = parseTokens(k.GetTokens(), out.to, r); err != nil {
		return rangeKey{}, err
	}
	out.to = min(out.to, len(out.tokens)/4)
	out.from = min(out.from, out.to)
	out.skipLoad, out.computed = parseOptions(k.EncodedRequestConfigs)
	return out, nil
}

// parseTokens returns the tokens as LMCache 0.5.7 sends them. end is the token behind the last one that the
// call is about. Of a client of an unknown release the bytes decide: read as varints when they are not,
// tokens would be those of another text, whose KV they would load; so that is never guessed.
func parseTokens(b []byte, end int, r release) ([]byte, error) {
	switch {
	case r == since056:
		return unpackVarints(b)
	case r == since057, looksPacked(b, end):
		if len(b)%4 != 0 || len(b)/4 > maxTokens {
			return nil, fmt.Errorf("lmcache: key: the tokens have %d bytes, which is not four each of at most %d: %w", len(b), maxTokens, fs.ErrInvalid)
		}
		return b, nil
	}
	return nil, errUndecided
}

// looksPacked reports whether bytes are tokens of 0.5.7, whatever the release: four bytes each, enough of
// them, and below 2^24, as in every vocabulary.
func looksPacked(b []byte, end int) bool {
	if len(b)%4 != 0 || len(b)/4 < end {
		return false
	}
	for i := 0; i < len(b); i += 4 {
		if b[i] != 0 {
			return false
		}
	}
	return true
}

func unpackVarints(b []byte) ([]byte, error) {
	out := make([]byte, 0, 2*len(b))
	for len(b) > 0 {
		v, n := protowire.ConsumeVarint(b)
		if n < 0 || v > math.MaxUint32 || len(out)/4 >= maxTokens {
			return nil, fmt.Errorf("lmcache: key: token %d is no number from 0 to 2^32-1, or there are more than %d: %w", len(out)/4, maxTokens, fs.ErrInvalid)
		}
		out = binary.BigEndian.AppendUint32(out, uint32(v))
		b = b[n:]
	}
	return out, nil
}
