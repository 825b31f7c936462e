package config

import (
	"errors"
	"fmt"
	"slices"
)

// validate refuses what LMCache's engine refuses, and sets what that sets (LMCacheEngineConfig.validate of
// lmcache/v1/config.py).
func (c *Config) validate() error {
	value := func(name string) any { return c.at(name).Value }
	need := func(because string, names ...string) error {
		for _, n := range names {
			if value(n) == nil {
				return fmt.Errorf("%s needs %s", because, n)
			}
		}
		return nil
	}
	switch n := value("min_retrieve_tokens").(type) {
	case nil:
		return errors.New("min_retrieve_tokens has no value: write 0")
	case int64:
		if n < 0 {
			return fmt.Errorf("min_retrieve_tokens is %d, and not less than 0", n)
		}
	}
	blending := truth(value("enable_blending"))
	if blending {
		c.at("save_unfull_chunk").Value = true
	}
	controlled := truth(value("enable_controller"))
	if controlled {
		if err := need("enable_controller", "controller_pull_url", "controller_reply_url"); err != nil {
			return err
		}
		if !truth(value("lmcache_worker_ports")) {
			return errors.New("enable_controller needs lmcache_worker_ports")
		}
	}
	peers := truth(value("enable_p2p"))
	if peers {
		if !controlled {
			return errors.New("enable_p2p needs enable_controller")
		}
		if err := need("enable_p2p", "p2p_host", "p2p_init_ports", "p2p_lookup_ports", "transfer_channel"); err != nil {
			return err
		}
	}
	if truth(value("enable_pd")) {
		if err := c.validateDisaggregated(need); err != nil {
			return err
		}
	}
	if extra, ok := value("extra_config").(map[string]any); ok && truth(extra["enable_nixl_storage"]) {
		return c.validateNIXL(extra, peers, need)
	}
	return nil
}

func (c *Config) validateDisaggregated(need func(string, ...string) error) error {
	value := func(name string) any { return c.at(name).Value }
	if err := need("enable_pd", "pd_role", "pd_buffer_size", "pd_buffer_device"); err != nil {
		return err
	}
	if value("enable_p2p") != false {
		return errors.New("enable_pd needs enable_p2p: false")
	}
	if mode := value("pd_backend_mode"); mode != "sync" && mode != "async" {
		return fmt.Errorf("pd_backend_mode is %v, and not sync or async", mode)
	}
	c.at("save_unfull_chunk").Value = true
	if value("pd_role") != "receiver" {
		return nil
	}
	if value("store_location") == "PDBackend" {
		return errors.New("a receiver does not take PDBackend as store_location")
	}
	if l := value("retrieve_locations"); l != nil && !slices.Equal(l.([]string), []string{"PDBackend"}) {
		return errors.New("a receiver takes PDBackend alone as retrieve_locations")
	}
	return nil
}

func (c *Config) validateNIXL(extra map[string]any, peers bool, need func(string, ...string) error) error {
	value := func(name string) any { return c.at(name).Value }
	for _, n := range []string{"nixl_backend", "nixl_pool_size"} {
		if extra[n] == nil {
			return fmt.Errorf("enable_nixl_storage needs %s in extra_config", n)
		}
	}
	if truth(extra["nixl_presence_cache_only"]) && !truth(extra["nixl_presence_cache"]) {
		return errors.New("nixl_presence_cache_only needs nixl_presence_cache in extra_config")
	}
	if err := need("enable_nixl_storage", "nixl_buffer_device"); err != nil {
		return err
	}
	onCPU := value("nixl_buffer_device") == "cpu"
	if !onCPU {
		if err := need("enable_nixl_storage", "nixl_buffer_size"); err != nil {
			return err
		}
	} else {
		size, ok := value("max_local_cpu_size").(float64)
		switch {
		case value("nixl_buffer_size") != nil:
			return errors.New("nixl_buffer_size is for another nixl_buffer_device than cpu")
		case !ok || size <= 0:
			return errors.New("nixl_buffer_device cpu needs a max_local_cpu_size")
		case peers:
			return errors.New("enable_p2p is not for nixl_buffer_device cpu")
		}
	}
	pages, ok := extra["nixl_use_hugepages"]
	if !ok {
		return nil
	}
	at := c.at("local_cpu_use_hugepages")
	if onCPU {
		if at.given && at.Value != truth(pages) {
			return errors.New(
				"nixl_use_hugepages of extra_config and local_cpu_use_hugepages differ: remove the first one")
		}
		at.Value = truth(pages)
	}
	delete(extra, "nixl_use_hugepages")
	return nil
}
