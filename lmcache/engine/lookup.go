package engine

import (
	"context"
	"slices"

	"github.com/ringcache/ringcache/tier"
)

// How many chunks of all layers a call handles at a time, and of how many objects a look-up asks at a time.
const (
	maxBatch  = 64
	maxLookup = 512
)

// Lookup returns up to which token the KV of a request can be loaded: the end of the longest prefix of chunks that are
// there with all their layers, counted from the first token. r.Skip if there are none. What a level that is away has, is
// not there.
//
// If hold is not nil, these chunks are fetched into memory and pinned by it, so that a load finds them. They stay until the
// caller unpins them, or releases the lease: at the end of the request.
func (e *Engine) Lookup(ctx context.Context, r Request, hold *tier.StoreLease) (int, error) {
	chunks, err := e.chunks(r, false)
	if err != nil {
		return 0, err
	}
	n, err := e.prefix(ctx, chunks, hold)
	return endOf(chunks[:n], r.Skip), err
}

func endOf(chunks []*chunk, skip int) int {
	if len(chunks) == 0 {
		return skip
	}
	return chunks[len(chunks)-1].end
}

// prefix returns how many chunks from the first one on are there.
func (e *Engine) prefix(ctx context.Context, chunks []*chunk, hold *tier.StoreLease) (int, error) {
	parts := e.parts()
	n := 0
	for some := range slices.Chunk(chunks, max(1, maxLookup/len(parts))) {
		var keys []tier.Key
		for _, c := range some {
			for _, layer := range parts {
				keys = append(keys, e.keyOf(c, layer))
			}
		}
		found, err := e.find(ctx, keys, hold)
		if err != nil {
			return n, err
		}
		for i, c := range some {
			for j, layer := range parts {
				if at := i*len(parts) + j; at >= len(found) || found[at].Err != nil || !e.fits(found[at].Object, c, layer) {
					if hold != nil {
						hold.Unpin(keys[i*len(parts):])
					}
					return n, nil
				}
			}
			n++
		}
	}
	return n, nil
}

// find asks for objects, and pins them if there is a lease for that. The answer may end with the first miss.
func (e *Engine) find(ctx context.Context, keys []tier.Key, hold *tier.StoreLease) ([]tier.Found, error) {
	if hold == nil {
		located := e.o.Store.Stat(ctx, keys)
		found := make([]tier.Found, len(located))
		for i := range located {
			found[i] = located[i].Found
		}
		return found, ctx.Err()
	}
	placed, err := ask(ctx, func() []tier.Placed { return hold.PinPrefix(keys) })
	if err != nil {
		hold.Unpin(keys)
		return nil, err
	}
	found := make([]tier.Found, len(placed))
	for i := range placed {
		found[i] = tier.Found{Object: placed[i].Object, Err: placed[i].Err}
	}
	return found, nil
}
