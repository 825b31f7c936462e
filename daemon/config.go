package daemon

import "time"

// Config is what a daemon runs with. Each field is a setting: the tag name is its key in a file, the flag
// --NAME, and the variable RINGCACHE_NAME in capitals with "_" for "-". [Sources.Load] makes a Config; the
// zero value is not valid, and [Sources] without anything gives the defaults.
//
// The other tags are for programs with flags and for documentation: help, default and placeholder as texts, is for the
// kind of the text where the type of the field leaves it open, and reload where a daemon that runs takes the setting
// over.
// See docs/decisions.md, "Flags, keys and variables are one table, read as texts".
type Config struct {
	Socket string `name:"socket" default:"/run/ringcache/ringcache.sock" placeholder:"PATH" help:"Unix socket for engines. A folder that is missing is made, for this user alone."`

	Name       string   `name:"name" default:"ringcache" placeholder:"NAME" help:"Segment of shared memory for objects."`
	Size       int64    `name:"size" is:"bytes" default:"1GiB" placeholder:"SIZE" help:"Bytes of the segment for objects, such as 4GiB."`
	ShmDir     string   `name:"shm-dir" placeholder:"FOLDER" help:"Folder of shared memory, /dev/shm if empty. Clients must have the same."`
	Prefault   bool     `name:"prefault" default:"false" help:"Map all pages of the segment at the start."`
	MaxObjects int      `name:"max-objects" default:"0" placeholder:"N" help:"Most objects in the segment; 0 is one for every 8 KiB. A segment that is there keeps its own."`
	MaxLeases  int      `name:"max-leases" default:"0" placeholder:"N" help:"Most open leases; 0 is 4096. A segment that is there keeps its own."`
	Quota      int64    `name:"quota" is:"bytes" default:"0" placeholder:"SIZE" reload:"yes" help:"Most bytes in memory of each tenant, which is a cache_salt for LMCache; 0 is no bound."`
	Quotas     []string `name:"quotas" placeholder:"TENANT=SIZE" reload:"yes" help:"Most bytes in memory of single tenants, instead of quota."`

	Disk       string   `name:"disk" placeholder:"FOLDER" help:"Folder for objects on a disk; FOLDER?layout=vllm-ec&space=SPACE for a tree of vLLM's ECExampleConnector."`
	DiskSize   int64    `name:"disk-size" is:"bytes" default:"0" placeholder:"SIZE" help:"Most bytes that files take; 0 is no limit but the disk's."`
	DiskQuota  int64    `name:"disk-quota" is:"bytes" default:"0" placeholder:"SIZE" reload:"yes" help:"Most bytes of files of each tenant; 0 is no bound."`
	DiskQuotas []string `name:"disk-quotas" placeholder:"TENANT=SIZE" reload:"yes" help:"Most bytes of files of single tenants, instead of disk-quota."`
	DiskWrite  string   `name:"disk-write" default:"back" placeholder:"WHEN" help:"back: what is stored is written to the disk in the background. around: only what is read from a slower level is."`

	Folder      string `name:"folder" placeholder:"FOLDER" help:"Folder that daemons of several hosts share, such as a mount of NFS; FOLDER?layout=lmcache&space=SPACE for one of LMCache's FS connector."`
	FolderSize  int64  `name:"folder-size" is:"bytes" default:"0" placeholder:"SIZE" help:"Most bytes of files in the folder of all hosts; 0 is no limit but the file system's."`
	FolderWrite string `name:"folder-write" default:"back" placeholder:"WHEN" help:"back or around, as disk-write."`

	Redis                     string `name:"redis" placeholder:"URL" help:"Redis or Valkey: redis://HOST:PORT/DB, rediss:// (TLS), unix:///PATH, redis+cluster://, redis+sentinel:// or HOST:PORT. No password."`
	RedisUser                 string `name:"redis-user" placeholder:"USER" help:"User at the Redis."`
	RedisPasswordFile         string `name:"redis-password-file" placeholder:"FILE" help:"File with the password of the Redis."`
	RedisSentinelUser         string `name:"redis-sentinel-user" placeholder:"USER" help:"User at the Sentinels."`
	RedisSentinelPasswordFile string `name:"redis-sentinel-password-file" placeholder:"FILE" help:"File with the password of the Sentinels."`
	RedisWrite                string `name:"redis-write" default:"back" placeholder:"WHEN" help:"back or around, as disk-write."`

	S3      string `name:"s3" placeholder:"URL" help:"Bucket of a store that speaks S3: s3://BUCKET/PREFIX?endpoint=https://HOST:PORT&region=REGION. Credentials are in the environment or in a file."`
	S3Write string `name:"s3-write" default:"back" placeholder:"WHEN" help:"back or around, as disk-write."`

	LMCache            []string `name:"lmcache" placeholder:"URL" help:"Where LMCache's connector finds this daemon in place of lmcache server: grpc+unix:///PATH, ipc:///PATH, grpc:// or tcp://127.0.0.1:PORT."`
	LMCacheChunkSize   int      `name:"lmcache-chunk-size" default:"256" placeholder:"N" help:"Tokens of a chunk of KV, at least: engines of LMCache 0.5.7 make it a multiple of their blocks."`
	LMCacheEngine      string   `name:"lmcache-engine" placeholder:"WORD" help:"A word for what engines do not register, such as the release of vLLM: KV is shared only under the same word."`
	LMCacheBodies      bool     `name:"lmcache-bodies" default:"false" help:"Send KV within messages even to engines that could map the segment; LMCache 0.5.7 only."`
	LMCacheCoordinator string   `name:"lmcache-coordinator" placeholder:"URL" help:"A ringcache directory, or LMCache's coordinator, that is told what KV is in memory: http://HOST:PORT."`
	LMCacheInstance    string   `name:"lmcache-instance" placeholder:"NAME" help:"This daemon's name at the coordinator; if empty, the host's and the segment's, with - between them."`

	LM               []string `name:"lm" placeholder:"HOST:PORT" help:"Where LMCache's lm:// connector finds this daemon in place of lmcache_server: HOST:PORT on loopback, or unix:///PATH."`
	LMFrom           string   `name:"lm-from" placeholder:"HOST:PORT" help:"An lmcache_server that is asked for what clients of lm want and the daemon does not have, which then stores it."`
	RESP             []string `name:"resp" placeholder:"HOST:PORT" help:"Where clients of Redis find this daemon, LMCache's RESP and Redis connectors among them: HOST:PORT on loopback, or unix:///PATH."`
	RESPUser         string   `name:"resp-user" default:"default" placeholder:"USER" help:"User of clients of Redis, if there is a password."`
	RESPPasswordFile string   `name:"resp-password-file" placeholder:"FILE" help:"File with the password that clients of Redis must send."`
	RESPFlush        bool     `name:"resp-flush" default:"false" help:"Let clients of Redis delete all values with FLUSHDB and FLUSHALL."`
	respPassword     secret   // of LMCACHE_RESP_PASSWORD, without the file
	ValuesAny        bool     `name:"values-any" default:"false" help:"Allow addresses for lm and resp that other machines reach. lm has no password, and nothing is encrypted."`

	HTTP         string   `name:"http" default:"127.0.0.1:9401" placeholder:"HOST:PORT" help:"Address for /healthz, /readyz, /metrics and /page/, and with lmcache for paths of lmcache server, or off."`
	HTTPAny      bool     `name:"http-any" default:"false" help:"Allow an address for HTTP that other machines reach. Without http-cert nothing is encrypted."`
	HTTPKeyFile  []string `name:"http-key-file" placeholder:"FILE" help:"Files with a key each, of which HTTP asks for one, but for /, /healthcheck, /healthz and /readyz."`
	httpKey      secret   // one more, of LMCACHE_API_KEY
	HTTPCert     string   `name:"http-cert" placeholder:"FILE" help:"Certificate of HTTP as PEM, with those between it and its authority: HTTP is by TLS then. Read again when it changes."`
	HTTPCertKey  string   `name:"http-cert-key" placeholder:"FILE" help:"Private key of http-cert, as PEM."`
	HTTPClientCA string   `name:"http-client-ca" placeholder:"FILE" help:"Authorities as PEM: HTTP asks clients for a certificate of one of them (mTLS), but for /, /healthcheck, /healthz and /readyz."`

	OTLP      string `name:"otlp" placeholder:"URL" help:"Collector of OpenTelemetry that gets spans by OTLP, such as http://127.0.0.1:4318. Without it none are made."`
	OTLPOneIn int    `name:"otlp-one-in" default:"100" placeholder:"N" help:"Of requests without a trace context of their caller, one in so many is traced; 1 is each."`
	PProf     string `name:"pprof" placeholder:"HOST:PORT" help:"Address on loopback, and no other, for profiles of the daemon by go tool pprof."`

	Grace time.Duration `name:"grace" default:"30s" placeholder:"TIME" reload:"yes" help:"How long clients have after a restart to come back before what they pinned may go. A reload is for the next start."`
	Drain time.Duration `name:"drain" default:"30s" placeholder:"TIME" reload:"yes" help:"How long the end waits for what is still to be written to lower levels."`

	MaxConnections   int           `name:"max-connections" default:"1024" placeholder:"N" reload:"yes" help:"Most connections of clients. A process may have a quarter of what others leave."`
	MaxSessions      int           `name:"max-sessions" default:"1024" placeholder:"N" reload:"yes" help:"Most sessions. A process may have a quarter of what others leave."`
	MaxSessionLeases int           `name:"max-session-leases" default:"1024" placeholder:"N" reload:"yes" help:"Most leases of a session, at most a quarter of max-leases."`
	MaxHeld          int64         `name:"max-held" is:"bytes" default:"0" placeholder:"SIZE" reload:"yes" help:"Most bytes that the sessions of a process may pin and reserve, as a share of what others leave; 0 is half of the segment."`
	MaxLease         time.Duration `name:"max-lease" default:"1h" placeholder:"TIME" reload:"yes" help:"Longest time of a lease; for lm and resp at least 5m."`
	DefaultLease     time.Duration `name:"default-lease" default:"5m" placeholder:"TIME" reload:"yes" help:"Time of a lease whose client names none."`

	LogLevel  string `name:"log-level" default:"info" placeholder:"LEVEL" reload:"yes" help:"debug, info, warn or error."`
	LogFormat string `name:"log-format" default:"logfmt" placeholder:"FORMAT" help:"logfmt or json, on stderr."`
}

// configured are the limits without a look at this process.
func (c Config) configured() Limits {
	return Limits{
		MaxConnections: c.MaxConnections, MaxSessions: c.MaxSessions, MaxLeases: c.MaxSessionLeases, MaxHeld: c.MaxHeld,
		MaxLease: c.MaxLease, DefaultLease: c.DefaultLease,
	}
}
