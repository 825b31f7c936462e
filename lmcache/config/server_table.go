package config

// Why a flag of lmcache server has no meaning for the daemon.
const (
	threads     = "the daemon has as many threads as the machine has cores"
	registered  = "engines register it with their KV"
	locks       = "5 minutes from look-up to load, 10 for a store that was begun; of a dead process all ends at once"
	events      = "the daemon remembers what came and left for engines that subscribe to KV events"
	devices     = "memory is a segment in shared memory"
	evicts      = "what costs least goes first, when room is needed"
	coordinator = "the daemon tells its lmcache-coordinator by HTTP, each second, what is in memory"
)

// serverOptions are the flags of lmcache server, of 0.5.6 and 0.5.7. Those without a reason have a row in
// translations.
var serverOptions = flags([]Option{
	{Name: "api-key-file", Type: typeTexts, Default: []string{}, form: formAppend, since: "0.5.7",
		also: []string{"http-api-key-file"}},
	{Name: "instance-id", Type: typeText, Default: nil},
	{Name: "transport", Type: typeText, Default: "zmq", choices: []string{"zmq", "grpc"}},
	{Name: "host", Type: typeText, Default: "localhost"},
	{Name: "port", Type: typeInt, Default: int64(5555)},
	{Name: "chunk-size", Type: typeInt, Default: int64(256)},
	{Name: "null-block-id", Type: typeInt, Default: int64(0), without: registered},
	{Name: "max-workers", Type: typeInt, Default: int64(1), without: threads},
	{Name: "max-gpu-workers", Type: typeInt, Default: nil, without: threads},
	{Name: "max-cpu-workers", Type: typeInt, Default: nil, without: threads},
	{Name: "grpc-server-workers", Type: typeInt, Default: int64(32), without: threads},
	{Name: "grpc-server-mode", Type: typeText, Default: "sync", since: "0.5.7",
		choices: []string{"sync", "aio", "native"}, without: threads},
	{Name: "hash-algorithm", Type: typeText, Default: "blake3"},
	{Name: "engine-type", Type: typeText, Default: "default", choices: []string{"default", "blend"}, without: blend},
	{Name: "supported-transfer-mode", Type: typeText, Default: "lmcache_driven",
		choices: []string{"lmcache_driven", "engine_driven", "auto"}},
	{Name: "isolated-ipc", Type: typeBool, Default: false, form: formBoth},
	{Name: "runtime-plugin-locations", Type: typeTexts, Default: []string{}, form: formMany, without: code},
	{Name: "runtime-plugin-config", Type: typeText, Default: "{}", without: code},
	{Name: "shm-name", Type: typeText, Default: ""},
	{Name: "script-allowed-imports", Type: typeTexts, Default: []string{}, form: formMany, without: inEngine},
	{Name: "run-script-api-enabled", Type: typeBool, Default: false, form: formBoth, without: inEngine},
	{Name: "separate-object-groups", Type: typeBool, Default: false, form: formBoth, without: registered},
	{Name: "worker-reap-timeout-seconds", Type: typeFloat, Default: 120.0, without: locks},
	{Name: "session-ttl-seconds", Type: typeFloat, Default: 600.0, without: locks},
	{Name: "kv-load-policy", Type: typeText, Default: "DEFAULT", since: "0.5.7", without: code},
	{Name: "worker-registration-grace-seconds", Type: typeFloat, Default: 3600.0, without: locks},
	{Name: "enable-segmented-prefix", Type: typeBool, Default: false, form: formTrue, without: blend},
	{Name: "enable-dedup-content", Type: typeBool, Default: false, form: formTrue, without: blend},
	{Name: "enable-blend-reorder", Type: typeBool, Default: false, form: formTrue, without: blend},
	{Name: "enable", Type: typeTexts, Default: []string{}, form: formMany, until: "0.5.6", without: code},
	{Name: "kv-event-log-size", Type: typeInt, Default: int64(32768), without: events},
	{Name: "server-module", Type: typeTexts, Default: []string{}, form: formAppend, without: code},
	{Name: "p2p-advertise-url", Type: typeText, Default: "", without: peers},
	{Name: "p2p-listen-url", Type: typeText, Default: "", without: peers},
	{Name: "p2p-lookup-timeout", Type: typeFloat, Default: 30.0, without: peers},
	{Name: "p2p-load-timeout", Type: typeFloat, Default: 30.0, without: peers},
	{Name: "p2p-transfer-engine", Type: typeText, Default: "nixl", without: peers},
	{Name: "l1-manager", Type: typeTexts, Default: []string{}, form: formAppend},
	{Name: "l1-size-gb", Type: typeFloat, Default: nil},
	{Name: "l1-use-lazy", Type: typeBool, Default: true, form: formBoth},
	{Name: "l1-init-size-gb", Type: typeInt, Default: int64(20), without: atOnce},
	{Name: "l1-align-bytes", Type: typeInt, Default: int64(4096), without: pages},
	{Name: "l1-use-hugepages", Type: typeBool, Default: false, form: formBoth, without: pages},
	{Name: "l1-devdax-path", Type: typeText, Default: nil, without: devices},
	{Name: "l1-devdax-offset-gb", Type: typeFloat, Default: 0.0, since: "0.5.7", without: devices},
	{Name: "l1-mlock", Type: typeBool, Default: false, form: formTrue, since: "0.5.7", without: pages},
	{Name: "gds-l1-path", Type: typeText, Default: nil, without: devices},
	{Name: "gds-l1-use-direct-io", Type: typeBool, Default: true, form: formBoth, without: devices},
	{Name: "gds-l1-backend", Type: typeText, Default: "auto",
		choices: []string{"auto", "cufile", "hipfile", "mufile", "phx", "ugds"}, without: devices},
	{Name: "l1-write-ttl-seconds", Type: typeInt, Default: int64(600), without: locks},
	{Name: "l1-read-ttl-seconds", Type: typeInt, Default: int64(300), without: locks},
	{Name: "eviction-policy", Type: typeText, Default: nil, choices: []string{"LRU", "ARC", "IsolatedLRU", "noop"}},
	{Name: "eviction-trigger-watermark", Type: typeFloat, Default: 0.8, without: evicts},
	{Name: "eviction-ratio", Type: typeFloat, Default: 0.2, without: evicts},
	{Name: "l2-store-policy", Type: typeText, Default: "default",
		choices: []string{"default", "skip_l1"}, without: where},
	{Name: "l2-prefetch-policy", Type: typeText, Default: "default",
		choices: []string{"default", "retain"}, without: where},
	{Name: "l2-prefetch-inflight-watermark", Type: typeFloat, Default: 0.5, since: "0.5.7", without: where},
	{Name: "l2-prefetch-max-in-flight", Type: typeInt, Default: int64(8), until: "0.5.6", without: where},
	{Name: "l2-prefetch-max-in-flight", Type: typeInt, Default: nil, since: "0.5.7", without: where},
	{Name: "periodic-notifier-interval-ms", Type: typeInt, Default: int64(5), without: threads},
	{Name: "l2-adapter", Type: typeTexts, Default: []string{}, form: formAppend},
	{Name: "http-host", Type: typeText, Default: "127.0.0.1"},
	{Name: "http-port", Type: typeInt, Default: int64(8080)},
	{Name: "disable-observability", Type: typeBool, Default: false, form: formTrue, without: counted},
	{Name: "disable-metrics", Type: typeBool, Default: false, form: formTrue, without: counted},
	{Name: "disable-grpc-metrics", Type: typeBool, Default: false, form: formTrue, without: counted},
	{Name: "disable-logging", Type: typeBool, Default: false, form: formTrue, without: counted},
	{Name: "enable-tracing", Type: typeBool, Default: false, form: formTrue, without: counted},
	{Name: "enable-token-trace", Type: typeBool, Default: false, form: formTrue, since: "0.5.7", without: counted},
	{Name: "otlp-endpoint", Type: typeText, Default: nil, without: counted},
	{Name: "event-bus-queue-size", Type: typeInt, Default: int64(10000), without: threads},
	{Name: "prometheus-port", Type: typeInt, Default: int64(9090)},
	{Name: "metrics-sample-rate", Type: typeFloat, Default: 0.01, without: counted},
	{Name: "lookup-hash-log-dir", Type: typeText, Default: "", without: counted},
	{Name: "lookup-hash-log-rotation-interval", Type: typeInt, Default: int64(21600), without: counted},
	{Name: "lookup-hash-log-rotation-max-size", Type: typeInt, Default: int64(104857600), without: counted},
	{Name: "lookup-hash-log-max-files", Type: typeInt, Default: int64(100), without: counted},
	{Name: "enable-gc-monitor", Type: typeBool, Default: false, form: formTrue, without: counted},
	{Name: "gc-monitor-min-pause-ms", Type: typeFloat, Default: 1.0, without: counted},
	{Name: "gc-monitor-top-objects", Type: typeInt, Default: int64(0), without: counted},
	{Name: "enable-extra-logging", Type: typeBool, Default: false, form: formTrue, without: counted},
	{Name: "extra-logging-interval", Type: typeFloat, Default: 10.0, without: counted},
	{Name: "trace-level", Type: typeText, Default: nil, choices: []string{"storage", "events"}, without: counted},
	{Name: "trace-output", Type: typeText, Default: nil, without: counted},
	{Name: "coordinator-url", Type: typeText, Default: nil},
	{Name: "coordinator-advertise-ip", Type: typeText, Default: nil, without: coordinator},
	{Name: "coordinator-heartbeat-interval", Type: typeFloat, Default: nil, without: coordinator},
	{Name: "coordinator-event-reporting", Type: typeBool, Default: nil, form: formTrue, without: coordinator},
	{Name: "coordinator-event-flush-interval", Type: typeFloat, Default: nil, without: coordinator},
	{Name: "coordinator-event-transport", Type: typeText, Default: "http",
		choices: []string{"http", "kafka"}, without: coordinator},
	{Name: "coordinator-kafka-bootstrap-servers", Type: typeText, Default: "", without: coordinator},
	{Name: "coordinator-kafka-topic", Type: typeText, Default: "lmcache-cache-events", without: coordinator},
	{Name: "coordinator-kafka-delivery-timeout", Type: typeFloat, Default: 300.0, without: coordinator},
	{Name: "coordinator-blend-timeout", Type: typeFloat, Default: 1.0, without: blend},
	{Name: "coordinator-blend-match-concurrency", Type: typeInt, Default: int64(8), without: blend},
	{Name: "coordinator-l2-event-reporting", Type: typeBool, Default: nil, form: formTrue, without: coordinator},
	{Name: "coordinator-l2-event-flush-interval", Type: typeFloat, Default: nil, without: coordinator},
})

// flags makes options those of the server.
func flags(all []Option) []Option {
	for i := range all {
		all[i].Server = true
	}
	return all
}
