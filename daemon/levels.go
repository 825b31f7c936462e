package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/ringcache/ringcache/daemon/internal/tracing"
	"github.com/ringcache/ringcache/internal/leasetable"
	"github.com/ringcache/ringcache/internal/location"
	"github.com/ringcache/ringcache/internal/passwordfile"
	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/internal/sidecar"
	"github.com/ringcache/ringcache/internal/sizes"
	"github.com/ringcache/ringcache/shmring/segment"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/disk"
	"github.com/ringcache/ringcache/tier/folder"
	"github.com/ringcache/ringcache/tier/memory"
	"github.com/ringcache/ringcache/tier/redis"
	"github.com/ringcache/ringcache/tier/s3"
)

// ownerLabel is in the sidecars of segments that daemons make, so that a sweep of others does not remove what the next
// daemon takes over.
const ownerLabel = "ringcache serve"

// levels are a store and what is below it.
type levels struct {
	store  *tier.Store
	memory *memory.Level
	lower  []tier.Level
	quotas quotas
	// fresh reports that the segment was made by this process, and that nobody has used it: close removes it.
	fresh bool
}

// open opens the levels and the store, the memory first: its lock is what makes this daemon the only one.
// After an error nothing is open. tracer, which may be nil, is told of the calls of lower levels.
func (c Config) open(ctx context.Context, log *slog.Logger, tracer *tracing.Tracer) (_ *levels, err error) {
	size, _ := c.found()
	l := &levels{fresh: size == 0, quotas: quotas{config: c}}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	if err := errors.Join(checkFiles(c), checkRoom(c)); err != nil {
		return nil, err
	}
	if l.memory, err = memory.Open(c.memoryOptions(log)); err != nil {
		return nil, explainMemory(c, err)
	}
	o := tier.Options{Memory: l.memory, Quota: c.Quota, Logger: log}
	if tracer != nil {
		o.Work = tracer.Work
	}
	for _, x := range c.lower() {
		if x.place == "" {
			continue
		}
		level, err := x.open(ctx, log)
		if err != nil {
			return nil, err
		}
		l.lower = append(l.lower, level)
		o.Lower = append(o.Lower, tier.Lower{Level: level, Write: writes[x.write]})
	}
	o.Quotas = l.setKept(c.keptQuotas)
	if l.store, err = tier.Open(ctx, o); err != nil {
		return nil, err
	}
	return l, nil
}

// lowerLevel is a kind of level below memory, as a configuration has it.
type lowerLevel struct {
	key   string // of the setting with the place
	place string // "" is none
	write string // the setting KEY-write

	problems func(*problems)   // also without a place
	files    func(f files) int // descriptors that are taken
	open     func(ctx context.Context, log *slog.Logger) (tier.Level, error)
	check    func(ctx context.Context) (text string, err error) // of `serve check`
}

// lower are the kinds of levels below memory, the fastest first.
func (c Config) lower() []lowerLevel {
	return []lowerLevel{
		{"disk", c.Disk, c.DiskWrite, c.diskProblems, c.diskFiles, c.openDisk, c.checkDisk},
		{"folder", c.Folder, c.FolderWrite, c.folderProblems, c.folderFiles, c.openFolder, c.checkFolder},
		{"redis", c.Redis, c.RedisWrite, c.redisProblems, c.redisFiles, c.openRedis, c.checkRedis},
		{"s3", c.S3, c.S3Write, c.s3Problems, c.s3Files, c.openS3, c.checkS3},
	}
}

func (c Config) openRedis(ctx context.Context, log *slog.Logger) (tier.Level, error) {
	r, err := c.dialRedis(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.Ping(ctx); err != nil {
		log.Warn("the Redis does not answer; it is asked again in the background, and what only it has is a miss until then", "error", err)
	}
	return r, nil
}

func (c Config) dialRedis(ctx context.Context) (*redis.Level, error) {
	o, err := c.redisOptions()
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	r, err := redis.Open(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("redis %s: %w", c.Redis, err)
	}
	return r, nil
}

func (c Config) openS3(ctx context.Context, log *slog.Logger) (tier.Level, error) {
	b, err := c.dialS3(ctx)
	if err != nil {
		return nil, err
	}
	if err := b.Ping(ctx); err != nil {
		log.Warn("the store of the bucket does not answer; it is asked again in the background, and what only it has is a miss until then", "error", err)
	}
	return b, nil
}

func (c Config) dialS3(ctx context.Context) (*s3.Level, error) {
	b, err := s3.Open(ctx, c.s3Options())
	if err != nil {
		return nil, fmt.Errorf("s3 %s: %w", c.S3, err)
	}
	return b, nil
}

func (c Config) s3Options() s3.Options { return s3.Options{URL: c.S3, Connections: c.files().s3} }

// close closes what is open: the store before its levels, the lower levels before memory. It may be called once.
func (l *levels) close() error {
	var errs []error
	if l.store != nil {
		errs = append(errs, l.store.Close())
	}
	for _, x := range slices.Backward(l.lower) {
		errs = append(errs, x.Close())
	}
	switch {
	case l.memory == nil:
	case l.fresh && l.memory.Usage().Objects == 0:
		errs = append(errs, l.memory.Remove())
	default:
		errs = append(errs, l.memory.Close())
	}
	return errors.Join(errs...)
}

// writes are the texts of policies.
var writes = map[string]tier.Write{"back": tier.Back, "around": tier.Around}

func (c Config) memoryOptions(log *slog.Logger) memory.Options {
	return memory.Options{
		Name: c.Name, Size: c.Size, Dir: c.ShmDir, MaxObjects: c.MaxObjects, MaxLeases: c.MaxLeases,
		Quota: c.Quota, Quotas: quotasOf(c.Quotas), Owner: ownerLabel, Logger: log,
	}
}

// quotasOf reads the quotas of a valid configuration.
func quotasOf(texts []string) map[string]int64 {
	all, _ := parseQuotas(texts)
	return all
}

// parseQuotas reads TENANT=SIZE. The second result is what is wrong.
func parseQuotas(texts []string) (map[string]int64, []string) {
	all := map[string]int64{}
	var wrong []string
	for _, q := range texts {
		i := strings.LastIndexByte(q, '=') // a tenant may contain it
		if i <= 0 {
			wrong = append(wrong, fmt.Sprintf("%q is not TENANT=SIZE, such as team-a=512MiB", q))
			continue
		}
		n, err := sizes.Parse(q[i+1:])
		_, twice := all[q[:i]]
		switch {
		case err != nil:
			wrong = append(wrong, err.Error())
		case len(q[:i]) > tier.MaxTenant:
			wrong = append(wrong, fmt.Sprintf("a tenant's name has %d bytes, the most is %d", i, tier.MaxTenant))
		case twice:
			wrong = append(wrong, fmt.Sprintf("the tenant %q has more than one quota", q[:i]))
		default:
			all[q[:i]] = n
		}
	}
	return all, wrong
}

// diskFolder is the folder of a valid configuration's disk, "" without one.
func (c Config) diskFolder() string {
	at, _ := location.Parse(c.Disk)
	return at.Folder
}

// diskOptions are those of a location.
func (c Config) diskOptions(at location.Location) disk.Options {
	o := at.DiskOptions()
	o.Capacity, o.Workers = c.DiskSize, c.files().disk
	o.Quota, o.Quotas = c.DiskQuota, quotasOf(c.DiskQuotas)
	return o
}

// disk returns the folder of the disk and its options, which the folder completes if it was opened before.
func (c Config) disk() (folder string, o disk.Options, err error) {
	at, err := location.Parse(c.Disk)
	if err == nil {
		at, err = at.Identify(true)
	}
	return at.Folder, c.diskOptions(at), err
}

func (c Config) openDisk(context.Context, *slog.Logger) (tier.Level, error) {
	folder, o, err := c.disk()
	if err != nil {
		return nil, explainDisk(c, err)
	}
	d, err := disk.Open(folder, o)
	if err != nil {
		return nil, explainDisk(c, err)
	}
	return d, nil
}

// folderScheme is in front of a folder of several hosts where a location is written; the setting has none.
const folderScheme = "folder:"

// folderOptions are those of a location.
func (c Config) folderOptions(at location.Location, log *slog.Logger) folder.Options {
	o := at.FolderOptions()
	o.Capacity, o.Workers, o.Logger = c.FolderSize, c.files().folder, log
	return o
}

// folder returns the folder of several hosts and its options, which the folder completes if it was opened before. A mount
// that hangs is not asked for that: what it would say, opening it says.
func (c Config) folder(log *slog.Logger) (path string, o folder.Options, err error) {
	at, err := location.Parse(folderScheme + c.Folder)
	if err == nil && at.Layout == nil {
		at.Layout = disk.Native{}
	}
	return at.Folder, c.folderOptions(at, log), err
}

func (c Config) openFolder(ctx context.Context, log *slog.Logger) (tier.Level, error) {
	path, o, err := c.folder(log)
	if err != nil {
		return nil, fmt.Errorf("folder %s: %w", c.Folder, err)
	}
	f, err := folder.Open(ctx, path, o)
	if err != nil {
		return nil, fmt.Errorf("folder %s: %w", c.Folder, err)
	}
	if err := f.Ping(ctx); err != nil {
		log.Warn("the shared folder does not answer; it is asked again in the background, and what only it has is a miss until then", "error", err)
	}
	return f, nil
}

// redisOptions reads the files of passwords, too.
func (c Config) redisOptions() (redis.Options, error) {
	o := redis.Options{User: c.RedisUser, SentinelUser: c.RedisSentinelUser, Connections: c.files().redis}
	u, err := redisURL(c.Redis)
	if err != nil {
		return o, err
	}
	o.URL = u
	for file, to := range map[string]*string{c.RedisPasswordFile: &o.Password,
		c.RedisSentinelPasswordFile: &o.SentinelPassword} {
		if file == "" {
			continue
		}
		if *to, err = passwordfile.Read(file); err != nil {
			return o, err
		}
	}
	return o, o.Validate()
}

// redisURL makes a URL of HOST:PORT, or of several, which are a cluster. It refuses passwords: command lines,
// environments and printed configurations are seen by others.
func redisURL(text string) (string, error) {
	if !strings.Contains(text, "://") {
		scheme := "redis://"
		if strings.Contains(text, ",") {
			scheme = "redis+cluster://"
		}
		text = scheme + text
	}
	rest := text[strings.Index(text, "://")+3:]
	if strings.Contains(rest, "@") {
		return "", fmt.Errorf("the URL has a user or a password: give them by redis-user and redis-password-file: %w",
			fs.ErrInvalid)
	}
	if u, err := url.Parse(text); err == nil && u.User != nil {
		return "", fmt.Errorf("the URL has a user: give it by redis-user: %w", fs.ErrInvalid)
	}
	return text, nil
}

// explainMemory adds what to do to an error of memory.Open.
func explainMemory(c Config, err error) error {
	size, pid := c.found()
	newer := (*sidecar.FormatError)(nil)
	switch {
	case errors.Is(err, segment.ErrOwned):
		who := "another process"
		if pid != 0 {
			who = fmt.Sprintf("another process, %d by its own account,", pid)
		}
		return fmt.Errorf("%s serves the segment %s: end it, or give this daemon another name, socket and http: %w",
			who, c.Name, err)
	case errors.As(err, &newer) && newer.Newer, errors.Is(err, leasetable.ErrNewer):
		return fmt.Errorf("the segment %s is of a later release: start that release, or give another name; `%s` removes the segment with all objects: %w",
			c.Name, shmfile.SweepCommand(c.Name), err)
	case errors.Is(err, segment.ErrSize) && size == c.Size:
		return fmt.Errorf("the segment %s is not as long as a daemon makes one of %s: it was cut short, or something else made it; give another name, or remove the segment with all objects by `%s`: %w",
			c.Name, sizes.Format(size), shmfile.SweepCommand(c.Name), err)
	case errors.Is(err, segment.ErrSize) && size != 0:
		return fmt.Errorf("the segment %s has another size, %s: keep it by size: %s, or give another name, or remove the segment with all objects by `%s`: %w",
			c.Name, sizes.Format(size), sizes.Format(size), shmfile.SweepCommand(c.Name), err)
	case errors.Is(err, segment.ErrForeign), errors.Is(err, segment.ErrUnsafe):
		return fmt.Errorf("%s in the folder of shared memory is no segment that a daemon of this user made: give another name: %w", c.Name, err)
	}
	return err
}

// found returns what the sidecar of the segment has, or zeros.
func (c Config) found() (size int64, pid int) {
	f, err := sidecar.OpenToLook(c.ShmDir, c.Name)
	if err != nil {
		return 0, 0
	}
	size, pid = int64(f.Options().RingSize), f.State().PID
	if f.Close() != nil {
		return 0, 0
	}
	return size, pid
}

// explainDisk adds where and what to do to an error of package disk.
func explainDisk(c Config, err error) error {
	if errors.Is(err, errors.ErrUnsupported) {
		err = fmt.Errorf("the folder is of another release, or this system can't lock it: %w", err)
	}
	return fmt.Errorf("disk %s: %w", c.Disk, err)
}

// loopback reports whether an address is of this machine alone.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
