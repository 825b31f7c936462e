package mmcache_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ringcache/ringcache/mmcache"
	"github.com/ringcache/ringcache/pycompat"
)

// selection is a configuration and what vLLM makes of it. change is applied to
// the defaults; with fallback vLLM silently uses processor_only instead.
type selection struct {
	name     string
	change   func(*mmcache.Config)
	mode     mmcache.Mode
	fallback string // reason
	err      string // any other error
}

var selections = []selection{
	{name: "defaults", change: func(*mmcache.Config) {}, mode: mmcache.LRU},
	{name: "shm", change: func(c *mmcache.Config) { c.CacheType = "shm" }, mode: mmcache.SHM},
	{name: "text only", change: func(c *mmcache.Config) { c.Multimodal = false }, mode: mmcache.None},
	{name: "switched off", change: func(c *mmcache.Config) { c.CacheGB = 0 }, mode: mmcache.None},
	{name: "off is no fallback", change: func(c *mmcache.Config) { c.CacheGB, c.APIServers = 0, 4 }, mode: mmcache.None},
	{name: "text only is no fallback", change: func(c *mmcache.Config) { c.Multimodal, c.DataParallel = false, 4 }, mode: mmcache.None},
	{name: "off needs no shared memory", change: func(c *mmcache.Config) { c.CacheType, c.CacheGB, c.Ray = "shm", 0, true }, mode: mmcache.None},

	{name: "2 API servers", change: func(c *mmcache.Config) { c.APIServers = 2 }, fallback: "there are 2 API servers"},
	{name: "2 API servers, shm", change: func(c *mmcache.Config) { c.CacheType, c.APIServers = "shm", 2 }, fallback: "there are 2 API servers"},
	{name: "data parallel", change: func(c *mmcache.Config) { c.DataParallel = 2 }, fallback: "data_parallel_size is 2 without external load balancing"},
	{name: "data parallel, shm", change: func(c *mmcache.Config) { c.CacheType, c.DataParallel = "shm", 2 },
		fallback: "data_parallel_size is 2 without external load balancing"},
	{name: "data parallel with external balancing", change: func(c *mmcache.Config) { c.DataParallel, c.ExternalLB = 2, true }, mode: mmcache.LRU},
	{name: "data parallel with external balancing, shm",
		change: func(c *mmcache.Config) { c.CacheType, c.DataParallel, c.ExternalLB = "shm", 2, true }, mode: mmcache.SHM},
	{name: "2 API servers with external balancing", change: func(c *mmcache.Config) { c.APIServers, c.DataParallel, c.ExternalLB = 2, 2, true },
		fallback: "there are 2 API servers"},
	{name: "the same from 0.15", change: func(c *mmcache.Config) { c.Engine, c.APIServers, c.ExternalLB = "0.15.0", 2, true },
		fallback: "there are 2 API servers"},
	{name: "the same before 0.15", change: func(c *mmcache.Config) { c.Engine, c.APIServers, c.ExternalLB = "0.14.1", 2, true }, mode: mmcache.LRU},
	{name: "the same before 0.15, data parallel",
		change: func(c *mmcache.Config) { c.Engine, c.APIServers, c.DataParallel, c.ExternalLB = "0.14.1", 2, 2, true }, mode: mmcache.LRU},
	{name: "2 API servers before 0.15", change: func(c *mmcache.Config) { c.Engine, c.APIServers = "0.14.1", 2 }, fallback: "there are 2 API servers"},
	{name: "data parallel before 0.15", change: func(c *mmcache.Config) { c.Engine, c.DataParallel = "0.14.1", 2 },
		fallback: "data_parallel_size is 2 without external load balancing"},

	{name: "tensor parallel, shm", change: func(c *mmcache.Config) { c.CacheType, c.WorldSize = "shm", 8 }, mode: mmcache.SHM},
	{name: "Ray, lru", change: func(c *mmcache.Config) { c.Ray = true }, mode: mmcache.LRU},
	{name: "Ray, shm", change: func(c *mmcache.Config) { c.CacheType, c.Ray = "shm", true }, err: "Ray"},
	{name: "2 nodes, lru", change: func(c *mmcache.Config) { c.Nodes = 2 }, mode: mmcache.LRU},
	{name: "2 nodes, shm", change: func(c *mmcache.Config) { c.CacheType, c.Nodes = "shm", 2 }, err: "2 machines"},
	{name: "object size, shm", change: func(c *mmcache.Config) { c.CacheType, c.MaxObjectMB = "shm", 64 }, mode: mmcache.SHM},
	{name: "object size, lru", change: func(c *mmcache.Config) { c.MaxObjectMB = 64 }, err: "mm_shm_cache_max_object_size_mb"},
	{name: "unknown type", change: func(c *mmcache.Config) { c.CacheType = "fifo" }, err: `"fifo"`},
	{name: "no type", change: func(c *mmcache.Config) { c.CacheType = "" }, err: "mm_processor_cache_type"},
	{name: "negative size", change: func(c *mmcache.Config) { c.CacheGB = -1 }, err: "mm_processor_cache_gb"},
	{name: "size is no number", change: func(c *mmcache.Config) { c.CacheGB = math.NaN() }, err: "mm_processor_cache_gb"},
	{name: "no API server", change: func(c *mmcache.Config) { c.APIServers = 0 }, err: "APIServers 0"},
	{name: "no engine", change: func(c *mmcache.Config) { c.DataParallel = 0 }, err: "DataParallel 0"},
	{name: "no worker", change: func(c *mmcache.Config) { c.WorldSize = 0 }, err: "WorldSize 0"},
	{name: "no machine", change: func(c *mmcache.Config) { c.Nodes = 0 }, err: "Nodes 0"},
	{name: "too old an engine", change: func(c *mmcache.Config) { c.Engine = "0.9.0" }, err: "0.9.0"},
	{name: "nonsense for an engine", change: func(c *mmcache.Config) { c.Engine = "newest" }, err: "newest"},
}

func TestSelect(t *testing.T) {
	for _, s := range selections {
		t.Run(s.name, func(t *testing.T) {
			c := mmcache.DefaultConfig()
			s.change(&c)
			o, err := c.Options()
			var fallback *mmcache.FallbackError
			switch {
			case s.fallback != "":
				require.ErrorAs(t, err, &fallback)
				require.Equal(t, s.fallback, fallback.Reason)
				require.Equal(t, c.CacheType, fallback.Asked.String())
				require.Equal(t, mmcache.ProcessorOnly, fallback.Upstream)
				require.ErrorContains(t, err, s.fallback)
				s.mode = mmcache.ProcessorOnly // once it is allowed
			case s.err != "":
				require.ErrorContains(t, err, s.err)
				require.NotErrorAs(t, err, &fallback)
			default:
				require.NoError(t, err)
				require.Equal(t, s.mode, o.Mode)
			}
			c.AllowFallback = true // is no licence for anything else
			o, err = c.Options()
			if s.err != "" {
				require.ErrorContains(t, err, s.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, s.mode, o.Mode)
			require.NoError(t, o.Validate())
		})
	}
}

func TestSelectInvalidIsErrInvalid(t *testing.T) {
	for what, change := range map[string]func(*mmcache.Config){
		`mm_processor_cache_type "fifo"`:  func(c *mmcache.Config) { c.CacheType = "fifo" },
		"mm_processor_cache_gb NaN":       func(c *mmcache.Config) { c.CacheGB = math.NaN() },
		"mm_shm_cache_max_object_size_mb": func(c *mmcache.Config) { c.MaxObjectMB = 1 },
		"Nodes 0":                         func(c *mmcache.Config) { c.Nodes = 0 },
		"Ray executor":                    func(c *mmcache.Config) { c.CacheType, c.Ray = "shm", true },
	} {
		t.Run(what, func(t *testing.T) {
			c := mmcache.DefaultConfig()
			change(&c)
			_, err := c.Options()
			requireInvalid(t, err, what)
		})
	}
}

// The sizes are those that the engine computes for itself.
func TestConfigOptions(t *testing.T) {
	options := func(change func(*mmcache.Config)) mmcache.Options {
		c := mmcache.DefaultConfig()
		change(&c)
		o, err := c.Options()
		require.NoError(t, err)
		return o
	}
	const gib = 1 << 30

	o := options(func(*mmcache.Config) {})
	require.Equal(t, mmcache.Options{Mode: mmcache.LRU, Generation: pycompat.Newest(), Capacity: 4 * gib}, o)

	o = options(func(c *mmcache.Config) { c.CacheGB = 0.0000001 })
	require.InDelta(t, 107.3741824, o.Capacity, 1e-9, "a mirrored cache has fractions of bytes")

	o = options(func(c *mmcache.Config) { c.APIServers, c.AllowFallback, c.CacheType = 2, true, "shm" })
	require.Equal(t, mmcache.Options{Mode: mmcache.ProcessorOnly, Generation: pycompat.Newest(), Capacity: 4 * gib}, o)

	o = options(func(c *mmcache.Config) { c.CacheType, c.WorldSize = "shm", 8 })
	require.Equal(t, mmcache.Options{Mode: mmcache.SHM, Generation: pycompat.Newest(), Capacity: 4 * gib, Shared: mmcache.SharedOptions{Readers: 8, MaxObject: 128 << 20}}, o)

	o = options(func(c *mmcache.Config) { c.CacheType, c.CacheGB, c.MaxObjectMB = "shm", 0.0000001, 3 })
	require.EqualValues(t, 107, o.Capacity, "a ring has whole bytes")
	require.Equal(t, 107, o.Shared.MaxObject, "an object is not larger than the ring")

	o = options(func(c *mmcache.Config) { c.CacheType, c.MaxObjectMB = "shm", 3 })
	require.Equal(t, 3<<20, o.Shared.MaxObject)

	o = options(func(c *mmcache.Config) { c.CacheGB = 0 })
	require.Equal(t, mmcache.Options{Mode: mmcache.None, Generation: pycompat.Newest()}, o)

	for _, mb := range []int{-1, math.MaxInt >> 19} {
		c := mmcache.DefaultConfig()
		c.CacheType, c.MaxObjectMB = "shm", mb
		_, err := c.Options()
		require.ErrorIs(t, err, mmcache.ErrInvalid)
		require.ErrorContains(t, err, fmt.Sprintf("mm_shm_cache_max_object_size_mb %d is out of range", mb))
	}

	old, err := pycompat.Lookup("0.14.1")
	require.NoError(t, err)
	o = options(func(c *mmcache.Config) { c.Engine = "0.14.1" })
	require.Same(t, old, o.Generation)
}
