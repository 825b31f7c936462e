package coordinator

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/ringcache/ringcache/kv"
	"github.com/ringcache/ringcache/kv/directory"
)

var errLarge = statusError{http.StatusBadRequest, errors.New("the answer would be too large; ask for fewer keys")}

// chain returns the hashes of the chunks of tokens.
func (s *Server) chain(q lookupRequest) (c *kv.Chain, world int, err error) {
	world = 1
	if q.World != nil {
		world = *q.World
	}
	if world < 1 || world > maxWorld {
		return nil, 0, invalid("world_size is %d", world)
	}
	if q.Model == "" {
		return nil, 0, invalid("'model_name' is required with 'token_ids'")
	}
	if len(q.Tokens) > maxTokens {
		return nil, 0, statusError{http.StatusBadRequest,
			fmt.Errorf("too many token_ids in a single request (limit=%d, got=%d)", maxTokens, len(q.Tokens))}
	}
	if err := (kv.ObjectKey{Hash: []byte{0}, Model: q.Model, Salt: q.Salt}).Validate(); err != nil {
		return nil, 0, statusError{http.StatusBadRequest, err}
	}
	s.mu.Lock()
	c = s.hasher.NewChain()
	s.mu.Unlock()
	if err := c.SetTokens(q.Tokens); err != nil {
		return nil, 0, statusError{http.StatusBadRequest, err}
	}
	return c, world, nil
}

// ranks are those of all workers.
func ranks(world int) []kv.Rank {
	all := make([]kv.Rank, world)
	for i := range all {
		all[i], _ = kv.NewRank(world, i, world, i) // they are in range
	}
	return all
}

func (s *Server) lookup(_ *http.Request, body []byte) (int, any, error) {
	var q lookupRequest
	if err := read(body, &q); err != nil {
		return 0, nil, err
	}
	if (len(q.Keys) > 0) == (len(q.Tokens) > 0) {
		return 0, nil, invalid("supply exactly one of 'keys' or 'token_ids'")
	}
	r := lookupResponse{Chunks: len(q.Keys), Results: []keyResult{}}
	if len(q.Keys) > maxResults {
		return 0, nil, invalid("%d keys; %d are the most", len(q.Keys), maxResults)
	}
	keys := make([]kv.ObjectKey, len(q.Keys))
	for i, e := range q.Keys {
		var err error
		if keys[i], err = e.key(); err != nil {
			return 0, nil, err
		}
	}
	room := maxAnswer
	add := func(k kv.ObjectKey, echo encodedKey) error {
		result := s.index.result(k, echo)
		if room -= 16 + len(result.Tokens) + 16*len(result.Placements); room < 0 {
			return errLarge
		}
		r.Results = append(r.Results, result)
		return nil
	}
	if len(keys) > 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		for i, k := range keys {
			if err := add(k, q.Keys[i]); err != nil {
				return 0, nil, err
			}
		}
		return http.StatusOK, r, nil
	}
	c, world, err := s.chain(q)
	if err != nil {
		return 0, nil, err
	}
	if r.Chunks = c.Len(); r.Chunks*world > maxResults {
		return 0, nil, statusError{http.StatusBadRequest,
			fmt.Errorf("%d chunks of %d workers; %d keys are the most", r.Chunks, world, maxResults)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	all := ranks(world)
	for i := range c.Len() {
		for _, k := range s.index.groups(kv.ObjectKey{Hash: c.Hash(i), Model: q.Model, Salt: q.Salt}, all) {
			if err := add(k, encode(k)); err != nil {
				return 0, nil, err
			}
		}
	}
	return http.StatusOK, r, nil
}

// Longest returns which instances hold the longest prefixes of a request: of each chunk the objects of all workers of a
// model, in group 0. In what it returns, Chunks counts chunks, not objects.
func (s *Server) Longest(
	model string, world int, salt string, tokens []int64, most int,
) (found []directory.Prefix, chunks int, err error) {
	c, world, err := s.chain(lookupRequest{Model: model, World: &world, Salt: salt, Tokens: tokens})
	if err != nil {
		return nil, 0, err
	}
	if c.Len()*world > maxResults {
		return nil, 0, invalid("%d chunks of %d workers; %d keys are the most", c.Len(), world, maxResults)
	}
	spaces := make([]string, world)
	for i, rank := range ranks(world) {
		spaces[i] = spaceOf(kv.ObjectKey{Model: model, Rank: rank, Salt: salt})
	}
	keys := make([]directory.Key, 0, c.Len()*world)
	for i := range c.Len() {
		for _, space := range spaces {
			keys = append(keys, directory.KeyOf(space, c.Hash(i)))
		}
	}
	found = s.o.Directory.Find(keys, directory.Query{Most: most})
	for i := range found {
		found[i].Chunks /= world
		for j := range found[i].Places {
			found[i].Places[j].Chunks = min((found[i].Places[j].Chunks+world-1)/world, found[i].Chunks)
		}
	}
	return slices.DeleteFunc(found, func(p directory.Prefix) bool { return p.Chunks == 0 }), c.Len(), nil
}

func (s *Server) longest(_ *http.Request, body []byte) (int, any, error) {
	var q longestRequest
	if err := read(body, &q); err != nil {
		return 0, nil, err
	}
	if q.Most < 0 || len(q.Keys) > 0 {
		return 0, nil, invalid("most is below 0, or there are keys")
	}
	world := 1
	if q.World != nil {
		world = *q.World
	}
	found, chunks, err := s.Longest(q.Model, world, q.Salt, q.Tokens, q.Most)
	if err != nil {
		return 0, nil, err
	}
	s.mu.Lock()
	size := s.chunk
	s.mu.Unlock()
	r := longestResponse{Chunks: chunks, Instances: []instanceHold{}}
	for _, p := range found {
		h := instanceHold{
			Instance: p.Instance, Chunks: p.Chunks, Tokens: p.Chunks * size, Places: map[string]int{}, Stale: p.Stale,
		}
		for _, at := range p.Places {
			h.Places[at.Location] = at.Chunks
		}
		r.Instances = append(r.Instances, h)
	}
	return http.StatusOK, r, nil
}

// blend answers as LMCache's coordinator without --enable-blend-lookup.
func (s *Server) blend(_ *http.Request, body []byte) (int, any, error) {
	var q struct {
		Tokens string `json:"tokens_b64"`
		Model  string `json:"model_name"`
		World  *int   `json:"world_size"`
	}
	if err := read(body, &q); err != nil {
		return 0, nil, err
	}
	packed, err := base64.StdEncoding.DecodeString(q.Tokens)
	if err != nil || len(packed)%4 != 0 || len(packed) > 0 && q.Model == "" || q.World != nil && *q.World < 1 {
		return 0, nil, invalid("tokens_b64 are no tokens, or there is no model_name")
	}
	return http.StatusOK, map[string]any{"matches": []any{}}, nil
}

func (s *Server) list(q *http.Request, _ []byte) (int, any, error) {
	v := q.URL.Query()
	tier, offset, limit := cmp.Or(v.Get("tier"), "all"), 0, 1000
	var err error
	if x := v.Get("offset"); x != "" {
		offset, err = strconv.Atoi(x)
	}
	if x := v.Get("limit"); x != "" && err == nil {
		limit, err = strconv.Atoi(x)
	}
	if err != nil || offset < 0 || limit < 1 || limit > maxPage || tier != "all" && tier != "l1" && tier != "l2" {
		return 0, nil, invalid("tier, offset or limit is none")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.index.list(func(p place) bool {
		return (tier == "all" || p.Tier == tier) &&
			(v.Get("instance_id") == "" || p.Instance == v.Get("instance_id")) &&
			(v.Get("backend") == "" || p.Backend == v.Get("backend"))
	}, offset, limit)
	if !ok {
		return 0, nil, errLarge
	}
	return http.StatusOK, r, nil
}
