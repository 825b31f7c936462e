package coordinator

import (
	"cmp"
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
		o: o, bodies: make(chan struct{}, atOnce), turns: make(chan struct{}, atOnce), index: x,
		gate:      &gate{x, map[string]*stream{}, map[string]int64{}},
		instances: map[string]*instance{}, hasher: h, chunk: o.ChunkTokens,
	}, nil
}
