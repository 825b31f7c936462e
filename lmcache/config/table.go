package config

import "math"

// Why an option has no meaning for the daemon.
const (
	blend         = "blending is not there"
	peers         = "engines on one machine share the daemon; there are no transfers between machines"
	disaggregated = "no proxy and no roles: what a prefill engine has stored, a decode engine loads from the daemon"
	transfer      = "engines copy to and from shared memory themselves"
	controlled    = "ringcache directory takes the controller's place, " +
		"and follows the KV events of engines; the daemon reports nothing"
	inEngine = "a server of each engine; http is that of the daemon"
	code     = "no code of others is loaded"
	atOnce   = "all of size is taken from shared memory at the start"
	counted  = "the daemon counts by itself: ringcache serve status, /metrics"
	hidden   = "hidden states are not kept"
	lookUp   = "a look-up is one call to the daemon, " +
		"whose time limit is the connector's option lmcache.mp.mq_timeout"
	loading = "always so: a look-up begins to fetch what lower levels have, and the engine asks again meanwhile; " +
		"LMCache's own sockets for it, between scheduler and worker, are not served"
	pins         = "what an engine has looked up is locked for 5 minutes, or until the engine ends"
	where        = "every level is written to and read from"
	fewer        = "everything that is there is loaded"
	remoteConfig = "settings come from flags, variables and one file"
	pages        = "the pages of the segment are those of the file system of shared memory: its mount options decide"
	oneFolder    = "objects of all workers are in one folder"
	engines      = "decided in the engine; the daemon keeps what engines store"
	sglang       = "where a server of SGLang's engines listens; here it is lmcache"
)

// engineOptions are the options of an engine with LMCache inside (lmcache/v1/config.py), the same in 0.5.6
// and 0.5.7. Each is LMCACHE_NAME in the environment. What has no reason is translated by translate.go.
var engineOptions = []Option{
	{Name: "chunk_size", Type: typeInt, Default: int64(256)},
	{Name: "local_cpu", Type: typeBool, Default: true},
	{Name: "max_local_cpu_size", Type: typeFloat, Default: 5.0},
	{Name: "local_cpu_use_hugepages", Type: typeBool, Default: false, without: pages},
	{Name: "reserve_local_cpu_size", Type: typeFloat, Default: 0.0, without: atOnce},
	{Name: "local_disk", Type: typeFolders, Default: nil},
	{Name: "local_disk_path_sharding", Type: typeText, Default: "by_gpu", without: oneFolder},
	{Name: "max_local_disk_size", Type: typeFloat, Default: 0.0},
	{Name: "remote_url", Type: typeText, Default: nil},
	{Name: "remote_serde", Type: typeText, Default: "naive"},
	{Name: "use_layerwise", Type: typeBool, Default: false, without: engines},
	{Name: "save_decode_cache", Type: typeBool, Default: false, without: engines},
	{Name: "pre_caching_hash_algorithm", Type: typeText, Default: "builtin"},
	{Name: "enable_blending", Type: typeBool, Default: false, without: blend},
	{Name: "blend_recompute_ratios", Type: typeFloats, Default: nil, without: blend},
	{Name: "blend_thresholds", Type: typeFloats, Default: nil, without: blend},
	{Name: "blend_check_layers", Type: typeInts, Default: nil, without: blend},
	{Name: "blend_min_tokens", Type: typeInt, Default: int64(256), without: blend},
	{Name: "blend_special_str", Type: typeText, Default: " # # ", without: blend},
	{Name: "retrieve_locations", Type: typeTexts, Default: nil, without: where},
	{Name: "store_location", Type: typeText, Default: nil, without: where},
	{Name: "enable_p2p", Type: typeBool, Default: false, without: peers},
	{Name: "p2p_host", Type: typeText, Default: nil, without: peers},
	{Name: "p2p_init_ports", Type: typeInts, Default: nil, without: peers},
	{Name: "p2p_lookup_ports", Type: typeInts, Default: nil, without: peers},
	{Name: "mp_host", Type: typeText, Default: nil, without: sglang},
	{Name: "mp_port", Type: typeInt, Default: int64(5555), without: sglang},
	{Name: "enable_controller", Type: typeBool, Default: false, without: controlled},
	{Name: "lmcache_instance_id", Type: typeText, Default: nil, without: controlled},
	{Name: "controller_pull_url", Type: typeText, Default: nil, without: controlled},
	{Name: "controller_reply_url", Type: typeText, Default: nil, without: controlled},
	{Name: "lmcache_worker_ports", Type: typeInts, Default: nil, without: controlled},
	{Name: "lmcache_worker_ids", Type: typeInts, Default: nil, without: controlled},
	{Name: "lmcache_worker_heartbeat_delay_time", Type: typeInt, Default: int64(10), without: controlled},
	{Name: "lmcache_worker_heartbeat_time", Type: typeInt, Default: nil, without: controlled},
	{Name: "enable_pd", Type: typeBool, Default: false, without: disaggregated},
	{Name: "pd_role", Type: typeText, Default: nil, without: disaggregated},
	{Name: "pd_buffer_size", Type: typeInt, Default: nil, without: disaggregated},
	{Name: "pd_buffer_device", Type: typeText, Default: nil, without: disaggregated},
	{Name: "pd_peer_host", Type: typeText, Default: nil, without: disaggregated},
	{Name: "pd_peer_init_port", Type: typeInts, Default: nil, without: disaggregated},
	{Name: "pd_peer_alloc_port", Type: typeInts, Default: nil, without: disaggregated},
	{Name: "pd_peer_query_port", Type: typeInts, Default: nil, without: disaggregated},
	{Name: "pd_proxy_host", Type: typeText, Default: nil, without: disaggregated},
	{Name: "pd_proxy_port", Type: typeInt, Default: nil, without: disaggregated},
	{Name: "pd_allocation_timeout_sec", Type: typeFloat, Default: math.Inf(1), without: disaggregated},
	{Name: "pd_shutdown_timeout_sec", Type: typeFloat, Default: 5.0, without: disaggregated},
	{Name: "pd_condition_poll_interval_sec", Type: typeFloat, Default: 0.005, without: disaggregated},
	{Name: "pd_max_prefill_len", Type: typeInt, Default: int64(0), without: disaggregated},
	{Name: "pd_backend_mode", Type: typeText, Default: "async", without: disaggregated},
	{Name: "pd_skip_proxy_notification", Type: typeBool, Default: false, without: disaggregated},
	{Name: "pd_bidirectional", Type: typeBool, Default: false, without: disaggregated},
	{Name: "transfer_channel", Type: typeText, Default: nil, without: transfer},
	{Name: "nixl_backends", Type: typeTexts, Default: nil, without: transfer},
	{Name: "nixl_buffer_size", Type: typeInt, Default: nil, without: transfer},
	{Name: "nixl_buffer_device", Type: typeText, Default: nil, without: transfer},
	{Name: "gds_path", Type: typeText, Default: nil, without: transfer},
	{Name: "gds_path_sharding", Type: typeText, Default: "by_gpu", without: transfer},
	{Name: "gds_buffer_size", Type: typeInt, Default: nil, without: transfer},
	{Name: "maru_path", Type: typeText, Default: nil, without: transfer},
	{Name: "maru_pool_size", Type: typeFloat, Default: 4.0, without: transfer},
	{Name: "use_gds", Type: typeBool, Default: true, without: transfer},
	{Name: "gds_backend", Type: typeText, Default: "cufile", without: transfer},
	{Name: "audit_actual_remote_url", Type: typeText, Default: nil, without: code},
	{Name: "internal_api_server_host", Type: typeText, Default: "127.0.0.1", without: inEngine},
	{Name: "extra_config", Type: typeMap, Default: nil},
	{Name: "save_unfull_chunk", Type: typeBool, Default: false},
	{Name: "blocking_timeout_secs", Type: typeInt, Default: int64(10), without: lookUp},
	{Name: "external_lookup_client", Type: typeText, Default: nil, without: code},
	{Name: "py_enable_gc", Type: typeBool, Default: true, without: engines},
	{Name: "cache_policy", Type: typeText, Default: "LRU"},
	{Name: "numa_mode", Type: typeText, Default: nil, without: pages},
	{Name: "enable_async_loading", Type: typeBool, Default: false, without: loading},
	{Name: "internal_api_server_enabled", Type: typeBool, Default: false, without: inEngine},
	{Name: "internal_api_server_port_start", Type: typeInt, Default: int64(6999), without: inEngine},
	{Name: "priority_limit", Type: typeInt, Default: nil, without: engines},
	{Name: "internal_api_server_include_index_list", Type: typeInts, Default: nil, without: inEngine},
	{Name: "internal_api_server_socket_path_prefix", Type: typeText, Default: nil, without: inEngine},
	{Name: "runtime_plugin_locations", Type: typePlugins, Default: nil, without: code},
	{Name: "storage_plugins", Type: typeTexts, Default: nil, without: code},
	{Name: "remote_storage_plugins", Type: typeTexts, Default: nil, without: code},
	{Name: "lookup_timeout_ms", Type: typeInt, Default: int64(3000), without: lookUp},
	{Name: "min_retrieve_tokens", Type: typeInt, Default: int64(0), without: fewer},
	{Name: "hit_miss_ratio", Type: typeFloat, Default: nil, without: fewer},
	{Name: "lookup_server_worker_ids", Type: typeInts, Default: nil, without: lookUp},
	{Name: "enable_scheduler_bypass_lookup", Type: typeBool, Default: false, without: lookUp},
	{Name: "script_allowed_imports", Type: typeTexts, Default: nil, without: inEngine},
	{Name: "run_script_api_enabled", Type: typeBool, Default: false, without: inEngine},
	{Name: "enable_lazy_memory_allocator", Type: typeBool, Default: false, without: atOnce},
	{Name: "lazy_memory_initial_ratio", Type: typeFloat, Default: 0.2, without: atOnce},
	{Name: "lazy_memory_expand_trigger_ratio", Type: typeFloat, Default: 0.5, without: atOnce},
	{Name: "lazy_memory_step_ratio", Type: typeFloat, Default: 0.1, without: atOnce},
	{Name: "lazy_memory_safe_size", Type: typeFloat, Default: 0.0, without: atOnce},
	{Name: "enable_chunk_statistics", Type: typeBool, Default: false, without: counted},
	{Name: "chunk_statistics_auto_start_statistics", Type: typeBool, Default: false, without: counted},
	{Name: "chunk_statistics_auto_exit_timeout_hours", Type: typeFloat, Default: 0.0, without: counted},
	{Name: "chunk_statistics_auto_exit_target_unique_chunks", Type: typeInt, Default: int64(0), without: counted},
	{Name: "chunk_statistics_strategy", Type: typeText, Default: "memory_bloom_filter", without: counted},
	{Name: "enable_kv_events", Type: typeBool, Default: false, without: controlled},
	{Name: "use_gpu_connector_v3", Type: typeBool, Default: false, without: transfer},
	{Name: "pin_timeout_sec", Type: typeInt, Default: int64(300), without: pins},
	{Name: "pin_check_interval_sec", Type: typeInt, Default: int64(30), without: pins},
	{Name: "remote_config_url", Type: typeText, Default: nil, without: remoteConfig},
	{Name: "app_id", Type: typeText, Default: nil, without: remoteConfig},
	{Name: "enable_hidden_state_cache", Type: typeBool, Default: false, without: hidden},
	{Name: "max_hidden_state_cpu_size", Type: typeFloat, Default: 2.0, without: hidden},
	{Name: "hidden_state_layers", Type: typeInts, Default: nil, without: hidden},
	{Name: "hidden_states_retrieve_mode", Type: typeMode, Default: "prefix_strict", without: hidden},
}

// aliases are old names that LMCache takes for new ones, with a warning.
var aliases = map[string]string{"plugin_locations": "runtime_plugin_locations", "external_backends": "storage_plugins"}

// ignored are old names with a new one which LMCache has in its list, but does not read.
var ignored = map[string]string{
	"enable_xpyd":          "enable_pd",
	"nixl_peer_host":       "pd_peer_host",
	"nixl_peer_init_port":  "pd_peer_init_port",
	"nixl_peer_alloc_port": "pd_peer_alloc_port",
	"nixl_proxy_host":      "pd_proxy_host",
	"nixl_proxy_port":      "pd_proxy_port",
	"nixl_role":            "pd_role",
	"controller_url":       "controller_pull_url",
	"lmcache_worker_port":  "lmcache_worker_ports",
}

// encoderAliases are the old names that LMCache takes behind ec_.
var encoderAliases = map[string]string{"nixl_buffer_size": "pd_buffer_size"}

// otherVariables are those that begin with LMCACHE_ and are no options of an engine.
var otherVariables = []string{
	"AEROSPIKE_HOSTS", "AEROSPIKE_NAMESPACE", "AEROSPIKE_PASSWORD", "AEROSPIKE_SET", "AEROSPIKE_USERNAME",
	"API_KEY", "API_KEY_FILE", "CONFIG_FILE", "CONTROLLER_CONFIG_FILE", "COORDINATOR_ADVERTISE_IP",
	"COORDINATOR_EVENT_FLUSH_INTERVAL", "COORDINATOR_EVENT_REPORTING", "COORDINATOR_HEARTBEAT_INTERVAL",
	"COORDINATOR_URL", "DEVICE_BACKEND", "DISABLE_BANNER", "FORCE_SKIP_SAVE", "GPU_STAGING_BUFFER_BYTES",
	"HTTP_API_KEY", "HTTP_API_KEY_FILE", "LOG_LEVEL", "MP_TRANSFER_MODE", "MQ_TIMEOUT", "MUSA_HANDLE_TRANSFER",
	"MUSA_NATIVE_KV_TRANSFER", "OFFLOAD_RPC_PORT", "PLUGIN_CONFIG", "PLUGIN_ROLE", "PLUGIN_WORKER_COUNT",
	"PLUGIN_WORKER_ID", "REQUEST_TELEMETRY_ENDPOINT", "REQUEST_TELEMETRY_TYPE", "RESP_HOST", "RESP_PASSWORD",
	"RESP_PORT", "RESP_USERNAME", "RUNTIME_PLUGIN_CONFIG", "RUNTIME_PLUGIN_ROLE", "RUNTIME_PLUGIN_WORKER_COUNT",
	"RUNTIME_PLUGIN_WORKER_ID", "SERVER_URL", "TRACK_USAGE", "USAGE_TRACK_INTERVAL", "USAGE_TRACK_URL",
}
