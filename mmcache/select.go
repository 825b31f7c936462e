package mmcache

import (
	"fmt"
	"math"

	"github.com/ringcache/ringcache/pycompat"
)

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
		Multimodal: true, CacheGB: defaultGB, CacheType: modeLRU, MaxObjectMB: defaultObjectMB,
		APIServers: 1, DataParallel: 1, WorldSize: 1, Nodes: 1,
	}
}

// mode returns the mode that vLLM chooses.
func (c Config) mode(g *pycompat.Generation) (string, error) {
	asked := c.CacheType
	switch {
	case asked != modeLRU && asked != modeSHM:
		return "", fmt.Errorf("%w: mm_processor_cache_type %q: want lru or shm", errInvalid, c.CacheType)
	case !(c.CacheGB >= 0): // NaN too
		return "", fmt.Errorf("%w: mm_processor_cache_gb %v: want 0 or more", errInvalid, c.CacheGB)
	case c.APIServers < 1 || c.DataParallel < 1 || c.WorldSize < 1 || c.Nodes < 1:
		return "", fmt.Errorf("%w: APIServers %d, DataParallel %d, WorldSize %d, Nodes %d: want 1 or more (see DefaultConfig)",
			errInvalid, c.APIServers, c.DataParallel, c.WorldSize, c.Nodes)
	case c.MaxObjectMB != defaultObjectMB && asked != modeSHM:
		return "", fmt.Errorf("%w: mm_shm_cache_max_object_size_mb is for cache type shm only; vLLM refuses it with %s",
			errInvalid, asked)
	case !c.Multimodal || c.CacheGB == 0:
		return modeNone, nil
	}
	one := c.APIServers == 1
	balanced := c.DataParallel == 1 || c.ExternalLB
	shared := one && balanced
	if g.Cache.ExternalLBAlone {
		shared = one && c.DataParallel == 1 || c.ExternalLB
	}
	if !shared {
		if c.AllowFallback {
			return modeProcessorOnly, nil
		}
		reason := fmt.Sprintf("there are %d API servers", c.APIServers)
		if one {
			reason = fmt.Sprintf("data_parallel_size is %d without external load balancing", c.DataParallel)
		}
		return "", fmt.Errorf("%w: cache type %s is configured, but vLLM silently uses processor_only, since %s: "+
			"change that, or set AllowFallback to do as vLLM", errInvalid, asked, reason)
	}
	if asked == modeSHM && c.Ray {
		return "", fmt.Errorf("%w: cache type shm does not work with the Ray executor, whose workers get no shared lock; use lru", errInvalid)
	}
	if asked == modeSHM && c.Nodes > 1 {
		return "", fmt.Errorf("%w: cache type shm does not reach the workers of %d machines; use lru",
			errInvalid, c.Nodes)
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
// mode, sizes and readers. The rest is to be filled in. Options fails with
// [fs.ErrInvalid] where vLLM or its workers would fail at start, and, but for
// AllowFallback, where vLLM would quietly use another cache than the configured one.
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
	case modeProcessorOnly, modeLRU:
		o.Capacity = c.CacheGB * (1 << 30)
	case modeSHM:
		n, err := pycompat.RingSize(c.CacheGB)
		if err != nil {
			return Options{}, err
		}
		if c.MaxObjectMB < 0 || c.MaxObjectMB > math.MaxInt>>20 {
			return Options{}, fmt.Errorf("%w: mm_shm_cache_max_object_size_mb %d is out of range",
				errInvalid, c.MaxObjectMB)
		}
		o.Capacity, o.Shared.Readers = float64(n), c.WorldSize
		o.Shared.MaxObject = min(c.MaxObjectMB<<20, n) // vLLM takes more, and then finds no room
	}
	return o, nil
}
