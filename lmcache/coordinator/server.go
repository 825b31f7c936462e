package coordinator

import (
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ringcache/ringcache/kv"
	"github.com/ringcache/ringcache/kv/directory"
)

// Options of a Server. Directory is needed.
type Options struct {
	Directory *directory.Directory
	// ChunkTokens is LMCache's --chunk-size of the coordinator: the least that instances may agree on. 0 is 256.
	ChunkTokens int
	// MaxObjects bounds the objects of which sizes and tokens are kept. 0 is 1 << 20.
	MaxObjects int
	// Timeout is how long after its last heartbeat an instance is dropped by Expire. 0 is 30 seconds.
	Timeout time.Duration
	// Now is the clock. nil is time.Now.
	Now func() time.Time
}

// Bounds of requests.
const (
	maxName        = 256 // bytes
	maxBody        = 16 << 20
	smallBody      = 64 << 10  // and a small answer
	maxTokens      = 1_000_000 // LMCache's own
	maxInstances   = 8 << 10
	maxMetadata    = 4 << 10 // bytes of an instance
	maxChunkTokens = 1 << 16
	bytesForTokens = 2 << 10 // of each object, on average
	maxWorld       = 255
	maxPage        = 10_000
	maxResults     = 1 << 17 // of one look-up; as many keys as the directory takes
	maxAnswer      = 8 << 20 // tokens of one look-up, of which a place counts as 16
	atOnce         = 8       // large bodies, and large answers
	slowPeer       = 10 * time.Second
	placesOfObject = 8                // on average
	idle           = 10 * time.Minute // of events of an instance that has not registered
)

var errInstances = fmt.Errorf("coordinator: %d instances are known, and no more can: %w", maxInstances, directory.ErrFull)

var errLarge = statusError{http.StatusBadRequest, errors.New("the answer would be too large; ask for fewer keys")}

// Server is the coordinator.
type Server struct {
	o      Options
	bodies chan struct{} // large ones that are read
	turns  chan struct{} // of what may have a large answer

	mu        sync.Mutex // guards what follows
	index     *index
	gate      *gate
	instances map[string]*instance
	hasher    *kv.Hasher
	chunk     int  // tokens
	bound     bool // the size is final
	events    Counts
}

type instance struct {
	instanceInfo

	heartbeat time.Time
}

// New returns a server.
func New(o Options) (*Server, error) {
	if o.Directory == nil {
		return nil, invalid("there is no Directory")
	}
	o.ChunkTokens = cmp.Or(o.ChunkTokens, kv.DefaultChunkTokens)
	o.MaxObjects = cmp.Or(o.MaxObjects, 1<<20)
	o.Timeout = cmp.Or(o.Timeout, 30*time.Second)
	if o.Now == nil {
		o.Now = time.Now
	}
	h, err := kv.NewHasher(kv.Scheme{ChunkTokens: o.ChunkTokens})
	if err != nil {
		return nil, err
	}
	x := newIndex(o.Directory, o.MaxObjects)
	return &Server{
		o: o, bodies: make(chan struct{}, atOnce), turns: make(chan struct{}, atOnce), index: x, gate: &gate{x, map[string]*stream{}, map[string]int64{}},
		instances: map[string]*instance{}, hasher: h, chunk: o.ChunkTokens,
	}, nil
}

// Counts are batches by what became of them, and what is kept.
type Counts struct {
	Applied, Duplicates, Stale, Full   int64
	Instances, Objects, StreamsWithGap int
}

// Counts returns them.
func (s *Server) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.events
	c.Full, c.Instances, c.Objects = s.index.full, len(s.instances), len(s.index.objects)
	for _, stream := range s.gate.streams {
		if stream.gap {
			c.StreamsWithGap++
		}
	}
	return c
}

// Expire drops the instances whose heartbeat is too old: what they hold in memory is gone. Call it from time to time. It
// returns how many it dropped.
func (s *Server) Expire() (dropped int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, i := range s.instances {
		if s.o.Now().Sub(i.heartbeat) > s.o.Timeout {
			delete(s.instances, name)
			s.gate.drop(name)
			dropped++
		}
	}
	for name, stream := range s.gate.streams {
		if s.instances[name] == nil && s.o.Now().Sub(stream.last) > idle {
			s.gate.drop(name)
			delete(s.gate.departed, name) // it may be alive: its next batch comes after a gap
			dropped++
		}
	}
	return dropped
}

// Handler serves the paths of LMCache's coordinator, and /directory/longest.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /events", s.large(s.takeEvents))
	mux.HandleFunc("POST /directory/lookup", s.large(s.lookup))
	mux.HandleFunc("POST /directory/blend-lookup", s.large(s.blend))
	mux.HandleFunc("POST /directory/longest", s.large(s.longest))
	mux.HandleFunc("GET /directory/keys", s.large(s.list))
	mux.HandleFunc("GET /directory/stats", s.handle(func(*http.Request, []byte) (int, any, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return http.StatusOK, s.index.stats(), nil
	}))
	mux.HandleFunc("POST /instances", s.handle(s.register))
	mux.HandleFunc("GET /instances", s.handle(s.all))
	mux.HandleFunc("PUT /instances/{id}/heartbeat", s.handle(s.heartbeat))
	mux.HandleFunc("DELETE /instances/{id}", s.handle(s.deregister))
	mux.HandleFunc("PUT /config/chunk-size", s.handle(s.bind))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]string{"status": "healthy"})
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusNotFound, map[string]string{"detail": "Not Found"})
	})
	return mux
}

func answer(w http.ResponseWriter, status int, body any) {
	status, b := encodeAnswer(status, body)
	write(w, status, b)
}

func encodeAnswer(status int, body any) (int, []byte) {
	if body == nil {
		return status, nil
	}
	b, err := json.Marshal(body)
	if err != nil { // no body has what JSON has not
		return http.StatusInternalServerError, []byte(`{"detail":"the answer is not JSON"}`)
	}
	return status, b
}

func write(w http.ResponseWriter, status int, b []byte) {
	if b != nil {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(status)
	_, _ = w.Write(b) // a client that went away
}

// statusError is an error with a status of HTTP.
type statusError struct {
	status int
	error
}

func (e statusError) Unwrap() error { return e.error }

// action is what a path does with a request.
type action func(q *http.Request, body []byte) (status int, answer any, err error)

// large serves a path whose bodies and answers may be large. A few at a time are in memory, and a peer that does not send
// or take one loses its place.
func (s *Server) large(do action) http.HandlerFunc {
	return func(w http.ResponseWriter, q *http.Request) {
		most := int64(smallBody)
		if q.ContentLength < 0 || q.ContentLength > most {
			if !enter(q, s.bodies) {
				return
			}
			defer leave(s.bodies)
			most = maxBody
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(slowPeer)) // not every ResponseWriter can
		}
		body, ok := receive(w, q, most)
		if !ok || !enter(q, s.turns) {
			return
		}
		status, b := perform(do, q, body)
		if len(b) > smallBody {
			defer leave(s.turns)
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(slowPeer))
		} else {
			leave(s.turns)
		}
		write(w, status, b)
	}
}

// handle serves a path whose bodies and answers are small. It waits for no other request, so heartbeats come through.
func (s *Server) handle(do action) http.HandlerFunc {
	return func(w http.ResponseWriter, q *http.Request) {
		if body, ok := receive(w, q, smallBody); ok {
			status, b := perform(do, q, body)
			write(w, status, b)
		}
	}
}

func enter(q *http.Request, places chan struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	case <-q.Context().Done():
		return false
	}
}

func leave(places chan struct{}) { <-places }

// receive reads the body. It reports whether there is one to answer.
func receive(w http.ResponseWriter, q *http.Request, most int64) (body []byte, ok bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, q.Body, most))
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		answer(w, http.StatusRequestEntityTooLarge, map[string]string{"detail": err.Error()})
	}
	return body, err == nil // or the client went away
}

// perform does what a request wants, and returns the answer.
func perform(do action, q *http.Request, body []byte) (int, []byte) {
	status, out, err := do(q, body)
	with := statusError{}
	switch {
	case err == nil:
		return encodeAnswer(status, out)
	case errors.As(err, &with):
		return encodeAnswer(with.status, map[string]string{"detail": err.Error()})
	case errors.Is(err, directory.ErrFull):
		return encodeAnswer(http.StatusServiceUnavailable, map[string]string{"detail": err.Error()})
	}
	return encodeAnswer(http.StatusUnprocessableEntity, map[string]any{ // in the form that FastAPI has for a body that is wrong
		"detail": []any{map[string]any{"type": "value_error", "loc": []string{"body"}, "msg": err.Error()}},
	})
}

func read(body []byte, to any) error {
	if err := json.Unmarshal(body, to); err != nil {
		return invalid("%v", err)
	}
	return nil
}

func (s *Server) takeEvents(_ *http.Request, body []byte) (int, any, error) {
	var q eventsRequest
	if err := read(body, &q); err != nil {
		return 0, nil, err
	}
	for i := range q.Batches { // all or none
		if err := q.Batches[i].check(); err != nil {
			return 0, nil, err
		}
	}
	var r eventsResponse
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range q.Batches {
		v, err := s.gate.take(&q.Batches[i], s.o.Now())
		if err != nil {
			return 0, nil, err
		}
		switch v {
		case admitted:
			r.Applied++
			s.events.Applied++
		case duplicate:
			r.Duplicates++
			s.events.Duplicates++
		case stale:
			r.Stale++
			s.events.Stale++
		}
	}
	return http.StatusOK, r, nil
}

// chain returns the hashes of the chunks of tokens.
func (s *Server) chain(q lookupRequest) (c *kv.Chain, world int, err error) {
	if q.World != nil {
		world = *q.World
	} else {
		world = 1
	}
	if world < 1 || world > maxWorld {
		return nil, 0, invalid("world_size is %d", world)
	}
	if q.Model == "" {
		return nil, 0, invalid("'model_name' is required with 'token_ids'")
	}
	if len(q.Tokens) > maxTokens {
		return nil, 0, statusError{http.StatusBadRequest, fmt.Errorf("too many token_ids in a single request (limit=%d, got=%d)", maxTokens, len(q.Tokens))}
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
		return 0, nil, statusError{http.StatusBadRequest, fmt.Errorf("%d chunks of %d workers; %d keys are the most", r.Chunks, world, maxResults)}
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
func (s *Server) Longest(model string, world int, salt string, tokens []int64, most int) ([]directory.Prefix, int, error) {
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
	found := s.o.Directory.Find(keys, directory.Query{Most: most})
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
		h := instanceHold{Instance: p.Instance, Chunks: p.Chunks, Tokens: p.Chunks * size, Places: map[string]int{}, Stale: p.Stale}
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
		return (tier == "all" || p.Tier == tier) && (v.Get("instance_id") == "" || p.Instance == v.Get("instance_id")) &&
			(v.Get("backend") == "" || p.Backend == v.Get("backend"))
	}, offset, limit)
	if !ok {
		return 0, nil, errLarge
	}
	return http.StatusOK, r, nil
}

func (s *Server) register(_ *http.Request, body []byte) (int, any, error) {
	var q registerRequest
	if err := read(body, &q); err != nil {
		return 0, nil, err
	}
	q.Instance, q.IP, q.PeerURL = strings.TrimSpace(q.Instance), strings.TrimSpace(q.IP), strings.TrimSpace(q.PeerURL)
	size := len(q.PeerURL)
	for k, v := range q.Metadata {
		size += len(k) + len(v)
	}
	if q.IP == "" || q.Instance == sharedHolder || len(q.IP) > maxName || len(q.Instance) > maxName || size > maxMetadata {
		return 0, nil, invalid("ip is empty, or a text is too long")
	}
	if q.Port < 1 || q.Port > 65535 || q.QueuePort < 0 || q.QueuePort > 65535 || q.ChunkSize != nil && *q.ChunkSize < 1 {
		return 0, nil, invalid("http_port, mq_port or chunk_size is none")
	}
	if q.Instance == "" {
		q.Instance = "mp-" + strings.ToLower(rand.Text())
	}
	if q.Metadata == nil {
		q.Metadata = map[string]string{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.ChunkSize != nil {
		if err := s.bindTo(*q.ChunkSize); err != nil {
			return 0, nil, err
		}
	}
	_, again := s.instances[q.Instance]
	if !again && len(s.instances) >= maxInstances {
		return 0, nil, errInstances
	}
	now := s.o.Now()
	s.instances[q.Instance] = &instance{instanceInfo{
		Instance: q.Instance, IP: q.IP, Port: q.Port, Registered: float64(now.UnixMicro()) / 1e6, Metadata: q.Metadata, PeerURL: q.PeerURL, QueuePort: q.QueuePort,
	}, now}
	s.gate.back(q.Instance)
	return http.StatusOK, registerResponse{q.Instance, again}, nil
}

func (s *Server) all(*http.Request, []byte) (int, any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []instanceInfo{}
	for _, name := range slices.Sorted(maps.Keys(s.instances)) {
		list = append(list, s.instances[name].instanceInfo)
	}
	return http.StatusOK, map[string]any{"instances": list}, nil
}

func (s *Server) heartbeat(q *http.Request, _ []byte) (int, any, error) {
	id := q.PathValue("id")
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.instances[id]
	if i == nil {
		return http.StatusNotFound, map[string]string{"error": "unknown instance " + id + "; re-register"}, nil
	}
	i.heartbeat = s.o.Now()
	return http.StatusOK, map[string]string{"instance_id": id}, nil
}

func (s *Server) deregister(q *http.Request, _ []byte) (int, any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.instances, q.PathValue("id"))
	s.gate.drop(q.PathValue("id"))
	return http.StatusNoContent, nil, nil
}

func (s *Server) bind(_ *http.Request, body []byte) (int, any, error) {
	var q struct {
		ChunkSize int `json:"chunk_size"`
	}
	if err := read(body, &q); err != nil {
		return 0, nil, err
	}
	if q.ChunkSize < 1 {
		return 0, nil, invalid("chunk_size is %d", q.ChunkSize)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.bindTo(q.ChunkSize); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, q, nil
}

// bindTo makes a size of chunks the final one. The caller has the lock.
func (s *Server) bindTo(size int) error {
	conflict := func(format string, args ...any) error {
		return statusError{http.StatusConflict, fmt.Errorf(format, args...)}
	}
	switch {
	case s.bound && size == s.chunk:
		return nil
	case s.bound:
		return conflict("Coordinator is already bound to chunk size %d; use a separate coordinator for a fleet requiring chunk size %d", s.chunk, size)
	case size < s.o.ChunkTokens:
		return conflict("Chunk size %d is smaller than the coordinator's configured minimum %d", size, s.o.ChunkTokens)
	}
	h, err := kv.NewHasher(kv.Scheme{ChunkTokens: size})
	if err != nil {
		return conflict("%v", err)
	}
	s.hasher, s.chunk, s.bound = h, size, true
	return nil
}
