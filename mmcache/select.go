package mmcache

import (
	"fmt"
	"math"

	"github.com/ringcache/ringcache/pycompat"
)

// Mode is the kind of a cache.
type Mode uint8

const (
	// None makes every item for every request.
	None Mode = iota
	// ProcessorOnly keeps items in the frontend and sends them each time.
	ProcessorOnly
	// LRU mirrors what the engine keeps and sends items once.
	LRU
	// SHM keeps items in shared memory and sends handles.
	SHM
)

func (m Mode) String() string {
	switch m {
	case None:
		return "none"
	case ProcessorOnly:
		return "processor_only"
	case LRU:
		return "lru"
	case SHM:
		return "shm"
	}
	return fmt.Sprintf("Mode(%d)", m)
}

// Config is what decides about the cache in a vLLM server's configuration. The
// names in the comments are vLLM's. [DefaultConfig] has the defaults.
type Config struct {
	Multimodal   bool    // the model takes multimodal inputs
	CacheGB      float64 // mm_processor_cache_gb, in GiB
	CacheType    string  // mm_processor_cache_type: "lru" or "shm"
	MaxObjectMB  int     // mm_shm_cache_max_object_size_mb, in MiB
	APIServers   int     // api_server_count, of all frontends
	DataParallel int     // data_parallel_size
	ExternalLB   bool    // data_parallel_external_lb
	WorldSize    int     // processes of one engine: tensor times pipeline parallel size
	Nodes        int     // machines that one engine runs on
	Ray          bool    // distributed_executor_backend is ray
	// Engine is the vLLM version, the newest known if empty.
	Engine string
	// AllowFallback takes what vLLM falls back to without an error.
	AllowFallback bool
}

// Defaults of vLLM, in all releases from 0.11.0 to 0.33.0.
const (
	defaultGB       = 4
	defaultObjectMB = 128
)

// DefaultConfig returns the configuration of a server that was given no options.
func DefaultConfig() Config {
	return Config{
		Multimodal: true, CacheGB: defaultGB, CacheType: "lru", MaxObjectMB: defaultObjectMB,
		APIServers: 1, DataParallel: 1, WorldSize: 1, Nodes: 1,
	}
}

// mode returns the mode that vLLM chooses.
func (c Config) mode(g *pycompat.Generation) (Mode, error) {
	asked, ok := map[string]Mode{"lru": LRU, "shm": SHM}[c.CacheType]
	switch {
	case !ok:
		return None, fmt.Errorf("%w: mm_processor_cache_type %q: want lru or shm", ErrInvalid, c.CacheType)
	case !(c.CacheGB >= 0): // NaN too
		return None, fmt.Errorf("%w: mm_processor_cache_gb %v: want 0 or more", ErrInvalid, c.CacheGB)
	case c.APIServers < 1 || c.DataParallel < 1 || c.WorldSize < 1 || c.Nodes < 1:
		return None, fmt.Errorf("%w: APIServers %d, DataParallel %d, WorldSize %d, Nodes %d: want 1 or more (see DefaultConfig)",
			ErrInvalid, c.APIServers, c.DataParallel, c.WorldSize, c.Nodes)
	case c.MaxObjectMB != defaultObjectMB && asked != SHM:
		return None, fmt.Errorf("%w: mm_shm_cache_max_object_size_mb is for cache type shm only; vLLM refuses it with %s", ErrInvalid, asked)
	case !c.Multimodal || c.CacheGB == 0:
		return None, nil
	}
	one := c.APIServers == 1
	balanced := c.DataParallel == 1 || c.ExternalLB
	shared := one && balanced
	if g.Cache.ExternalLBAlone {
		shared = one && c.DataParallel == 1 || c.ExternalLB
	}
	if !shared {
		if c.AllowFallback {
			return ProcessorOnly, nil
		}
		reason := fmt.Sprintf("there are %d API servers", c.APIServers)
		if one {
			reason = fmt.Sprintf("data_parallel_size is %d without external load balancing", c.DataParallel)
		}
		return None, &FallbackError{Asked: asked, Upstream: ProcessorOnly, Reason: reason}
	}
	if asked == SHM && c.Ray {
		return None, fmt.Errorf("%w: cache type shm does not work with the Ray executor, whose workers get no shared lock; use lru", ErrInvalid)
	}
	if asked == SHM && c.Nodes > 1 {
		return None, fmt.Errorf("%w: cache type shm does not reach the workers of %d machines; use lru", ErrInvalid, c.Nodes)
	}
	return asked, nil
}

func (c Config) generation() (*pycompat.Generation, error) {
	if c.Engine == "" {
		return pycompat.Newest(), nil
	}
	return pycompat.Lookup(c.Engine)
}

// Options returns the options of the cache that vLLM would make of a configuration
// (vllm/multimodal/cache.py to 0.14, registry.py to 0.30, then cache/factories.py): its
// mode, sizes and readers. The rest is to be filled in. Where vLLM would quietly use
// another cache than the configured one Options fails with [FallbackError], where vLLM
// or its workers would fail at start with [ErrInvalid].
func (c Config) Options() (Options, error) {
	g, err := c.generation()
	if err != nil {
		return Options{}, err
	}
	mode, err := c.mode(g)
	if err != nil {
		return Options{}, err
	}
	o := Options{Mode: mode, Generation: g}
	switch mode {
	case ProcessorOnly, LRU:
		o.Capacity = c.CacheGB * (1 << 30)
	case SHM:
		n, err := pycompat.RingSize(c.CacheGB)
		if err != nil {
			return Options{}, err
		}
		if c.MaxObjectMB < 0 || c.MaxObjectMB > math.MaxInt>>20 {
			return Options{}, fmt.Errorf("%w: mm_shm_cache_max_object_size_mb %d is out of range", ErrInvalid, c.MaxObjectMB)
		}
		o.Capacity, o.Shared.Readers = float64(n), c.WorldSize
		o.Shared.MaxObject = min(c.MaxObjectMB<<20, n) // vLLM takes more, and then finds no room
	}
	return o, nil
}
