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

// Lookup returns up to which token the KV of a request can be loaded: the end of the longest prefix of chunks
// that are there with all their layers, counted from the first token. r.Skip if there are none. What a level
// that is away has, is not there.
//
// If hold is not nil, these chunks are fetched into memory and pinned by it, so that a load finds them. They
// stay until the caller unpins them, or releases the lease: at the end of the request. Each request has a
// lease of its own. After an error none of the request's chunks is pinned, and the result is r.Skip.
func (e *Engine) Lookup(ctx context.Context, r Request, hold *tier.StoreLease) (int, error) {
	chunks, err := e.chunks(r, false)
	if err != nil {
		return 0, err
	}
	n, asked, err := e.prefix(ctx, chunks, hold)
	if err != nil {
		n = 0
	}
	if hold != nil && n < asked {
		e.keep(hold, chunks[:asked], n)
	}
	return endOf(chunks[:n], r.Skip), err
}

// keep gives up what hold has pinned of chunks behind the first n. Segments that are equal share a key, and may be on
// both sides.
func (e *Engine) keep(hold *tier.StoreLease, chunks []*chunk, n int) {
	kept := make(map[string]bool, n)
	for _, c := range chunks[:n] {
		kept[c.name] = true
	}
	var rest []*chunk
	for _, c := range chunks[n:] {
		if !kept[c.name] {
			rest = append(rest, c)
		}
	}
	for _, layer := range e.parts() {
		hold.Unpin(e.keysOf(rest, layer))
	}
}

func endOf(chunks []*chunk, skip int) int {
	if len(chunks) == 0 {
		return skip
	}
	return chunks[len(chunks)-1].end
}

// prefix returns how many chunks from the first one on are there, and how many it has asked for. hold may
// have pinned all of those.
func (e *Engine) prefix(ctx context.Context, chunks []*chunk, hold *tier.StoreLease) (n, asked int, err error) {
	parts := e.parts()
	for some := range slices.Chunk(chunks, max(1, maxLookup/len(parts))) {
		var keys []tier.Key
		for _, c := range some {
			for _, layer := range parts {
				keys = append(keys, e.keyOf(c, layer))
			}
		}
		asked += len(some)
		found, err := e.find(ctx, keys, hold)
		if err != nil {
			return n, asked, err
		}
		for i, c := range some {
			for j, layer := range parts {
				at := i*len(parts) + j
				if at >= len(found) || found[at].Err != nil || !e.fits(found[at].Object, c, layer) {
					return n, asked, nil
				}
			}
			n++
		}
	}
	return n, asked, nil
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
		return nil, err
	}
	found := make([]tier.Found, len(placed))
	for i := range placed {
		found[i] = tier.Found{Object: placed[i].Object, Err: placed[i].Err}
	}
	return found, nil
}
