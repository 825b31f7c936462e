package lmcache

import (
	"container/list"
	"encoding/hex"
	"sync"

	"github.com/ringcache/ringcache/kv"
)

// maxChainTokens bounds the tokens of all chains that are kept: about 5 bytes of memory for each. A chain
// counts as chainTokens more.
const (
	maxChainTokens = 4 << 20
	chainTokens    = 256
)

// chains are the hashes of the requests that were asked about last. A look-up, a load and each store of a
// request come with all its tokens again.
type chains struct {
	hasher *kv.Hasher

	mu     sync.Mutex
	all    map[string]*list.Element // of *chain, by request
	recent list.List                // the one that was used last is in front
	tokens int
}

type chain struct {
	request string
	tokens  int // the most that it has had, for which it keeps the memory

	mu    sync.Mutex // a call has it
	chain *kv.Chain
}

func newChains(chunk int) (*chains, error) {
	h, err := kv.NewHasher(kv.Scheme{ChunkTokens: chunk})
	if err != nil {
		return nil, err
	}
	return &chains{hasher: h, all: map[string]*list.Element{}}, nil
}

// names returns the names of the chunks [from, to) of a request.
func (c *chains) names(request string, packed []byte, from, to int) ([]string, error) {
	k := c.use(request, len(packed)/4)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.chain.Set(packed); err != nil {
		return nil, err
	}
	out := make([]string, 0, to-from)
	var text []byte
	for i := from; i < to; i++ {
		text = hex.AppendEncode(text[:0], k.chain.Hash(i))
		out = append(out, string(text))
	}
	return out, nil
}

// use returns the chain of a request, which will have so many tokens, and forgets others.
func (c *chains) use(request string, tokens int) *chain {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.all[request]
	if e == nil {
		e = c.recent.PushFront(&chain{request: request, chain: c.hasher.NewChain()})
		c.all[request] = e
	}
	c.recent.MoveToFront(e)
	k := e.Value.(*chain)
	tokens = max(k.tokens, tokens+chainTokens)
	c.tokens += tokens - k.tokens
	k.tokens = tokens
	for c.tokens > maxChainTokens && c.recent.Back() != e {
		c.remove(c.recent.Back())
	}
	return k
}

// end forgets the chain of a request.
func (c *chains) end(request string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.all[request]; e != nil {
		c.remove(e)
	}
}

func (c *chains) remove(e *list.Element) {
	k := c.recent.Remove(e).(*chain)
	delete(c.all, k.request)
	c.tokens -= k.tokens
}

// forgetChain forgets the hashes of a request that has ended.
func (s *Server) forgetChain(request string) {
	s.mu.Lock()
	c := s.chains
	s.mu.Unlock()
	if c != nil {
		c.end(request)
	}
}
