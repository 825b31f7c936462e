package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/ringcache/ringcache/internal/terminal"
	"github.com/ringcache/ringcache/kv"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/disk"
)

type migrateCommand struct {
	kvDaemon
	From    string  `arg:"" help:"Folder of lmcache server's FS adapter, or URL of a Redis that LMCache has filled."`
	To      string  `arg:"" help:"Where the objects go: a folder, shm:NAME, or the URL of a Redis, as for ringcache tier copy."`
	Layouts string  `placeholder:"FILE" help:"Layouts that ringcache kv ls --json has printed, instead of those of a running daemon."`
	Word    *string `help:"Only layouts of daemons with this --lmcache-engine."`
	Dir     string  `help:"Folder of shared memory, /dev/shm if empty."`
	JSON    bool    `name:"json" help:"Print one JSON object for each file and object that was not moved, and one for the sum."`
}

// Help is the end of ringcache migrate --help.
func (migrateCommand) Help() string {
	return `It copies what lmcache server has kept in a folder (its L2 adapter fs), so that engines find it through ringcache.
FROM stays as it is. What TO has already is left alone, so a run that was stopped is gone on with by the same command.

The name of a file has model, worker, group, chunk and cache_salt, but not what the bytes are. That is known from the
layout that an engine has registered: start the daemon with the --lmcache-chunk-size of the old server, start each
engine once, and run this, or save ringcache kv ls --json for --layouts. A file is moved if exactly one layout has its
model, number of workers and size. That the old server has hashed with blake3, which is its default, is not to be seen
in a file; what it has hashed otherwise is never found.

A folder that a daemon has open can't be written to: end the daemon first, or migrate to another folder, and start the
daemon with that.

FROM may also be redis://HOST:PORT: the values of LMCache's Redis connector and of its RESP connector are copied as
clients of ringcache serve --resp find them. Layouts are not needed. What that connector keeps under two keys of which
Redis has evicted one is skipped, and counted.

The exit status is 0 if TO has everything, and 1 if not.`
}

// Run copies.
func (c migrateCommand) Run() (err error) {
	if strings.Contains(c.From, "://") {
		return c.fromRedis()
	}
	if _, _, err := disk.Identify(c.From); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(err, fmt.Errorf("%s is a folder of ringcache: use `ringcache tier copy`", c.From))
	}
	layouts, err := c.layouts()
	if err != nil {
		return err
	}
	ctx, stop := interruptible()
	defer stop()
	stock := newStock(layouts)
	from, err := disk.Open(c.From, disk.Options{Layout: stock, Shared: true, ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	if err := from.WaitIndex(ctx); err != nil {
		return err
	}
	to, _, err := levelArgs{Level: c.To, Dir: c.Dir}.open(ctx, true, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	left := stock.left()
	if err := c.report(os.Stdout, left); err != nil {
		return err
	}
	err = tierCopy{From: c.From, To: c.To, JSON: c.JSON}.copy(ctx, to, from, "")
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%d files of %s were not moved", len(left), c.From)
	}
	return err
}

// layouts returns the layouts that files may have.
func (c migrateCommand) layouts() (all []kv.Layout, err error) {
	if c.Layouts != "" {
		var b []byte
		if b, err = os.ReadFile(c.Layouts); err != nil {
			return nil, err
		}
		if err = json.Unmarshal(b, &all); err != nil {
			return nil, fmt.Errorf("%s is not what ringcache kv ls --json prints: %w", c.Layouts, err)
		}
		for _, l := range all {
			if err := l.Validate(); err != nil {
				return nil, fmt.Errorf("%s: %w", c.Layouts, err)
			}
		}
	} else {
		err = c.use(func(_ context.Context, s *kvSession) error {
			all, err = s.of("")
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("the layouts of engines are not known; without a daemon, name them by --layouts: %w",
				err)
		}
	}
	if c.Word != nil {
		all = slices.DeleteFunc(all, func(l kv.Layout) bool { return l.Engine != *c.Word })
	}
	if len(all) == 0 {
		return nil, errors.New("there is no layout, so nothing can be moved: see `ringcache kv ls`")
	}
	return all, nil
}

// leftFile is a file that is not moved.
type leftFile struct {
	Path  string `json:"name"`
	Error string `json:"error"`
}

// report says which files are not moved, and why: by reason, with a few of each.
func (c migrateCommand) report(to io.Writer, left []leftFile) error {
	if c.JSON {
		enc := jsonLines(to)
		for _, f := range left {
			if err := enc.Encode(f); err != nil {
				return err
			}
		}
		return nil
	}
	byReason := map[string][]string{}
	for _, f := range left {
		byReason[f.Error] = append(byReason[f.Error], printable(f.Path))
	}
	for _, reason := range slices.Sorted(maps.Keys(byReason)) {
		files := byReason[reason]
		const some = 3
		more := ""
		if len(files) > some {
			more = fmt.Sprintf(" and %d more; --json names all", len(files)-some)
		}
		_, err := fmt.Fprintf(to, "%d files are not moved: %s: %s%s\n",
			len(files), terminal.Lines(reason), strings.Join(files[:min(some, len(files))], ", "), more)
		if err != nil {
			return err
		}
	}
	return nil
}

// stock is the layout of a folder of LMCache's FS adapter (lmcache/v1/distributed/l2_adapters/fs_l2_adapter.py of
// 0.5.6): a file is the bytes of an object, and its name an object key. It is read only. The spaces of objects are
// those of the layouts that engines have registered.
type stock struct {
	layouts []kv.Layout

	mu     sync.Mutex
	spaces map[string]kv.ObjectKey // of each space; only the hash differs within one
	failed map[string]error        // by path: why it is no object
}

func newStock(layouts []kv.Layout) *stock {
	return &stock{layouts: layouts, spaces: map[string]kv.ObjectKey{}, failed: map[string]error{}}
}

// Name implements disk.Layout.
func (*stock) Name() string { return "lmcache-l2" }

// Path implements disk.Layout.
func (s *stock) Path(k tier.Key) (string, error) {
	s.mu.Lock()
	of, ok := s.spaces[k.Space]
	s.mu.Unlock()
	hash, err := hex.DecodeString(k.Name)
	if !ok || err != nil {
		return "", fmt.Errorf("%v is no object of this folder: %w", k, fs.ErrInvalid)
	}
	of.Hash = hash
	return of.FileName()
}

// AppendHead implements disk.Layout.
func (*stock) AppendHead([]byte, tier.Object, uint32) ([]byte, error) {
	return nil, fmt.Errorf("a folder of lmcache server is only read: %w", errors.ErrUnsupported)
}

// ParseHead implements disk.Layout.
func (s *stock) ParseHead(name string, _ io.ReaderAt, size int64) (disk.Head, error) {
	k, space, err := s.identify(name, size)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.failed[name] = err
		return disk.Head{}, fmt.Errorf("%w: %w", err, fs.ErrInvalid)
	}
	delete(s.failed, name)
	object := tier.Object{
		Key: tier.Key{Space: space, Name: hex.EncodeToString(k.Hash)}, Size: size, Tenant: tenantOf(k.Salt),
	}
	k.Hash = nil
	s.spaces[space] = k
	return disk.Head{Object: object}, nil
}

// tenantOf is who is charged for the KV of a salt, as in the daemon.
func tenantOf(salt string) string { return salt[:min(len(salt), tier.MaxTenant)] }

// blake3Size is the bytes of a hash.
const blake3Size = 32

// identify returns the key of a file, and the space of its object.
func (s *stock) identify(name string, size int64) (kv.ObjectKey, string, error) {
	if path.Base(name) != name || !strings.HasSuffix(name, ".data") {
		return kv.ObjectKey{}, "", errors.New("no file of LMCache's FS adapter, which is MODEL@0xRANK@GROUP@HASH.data or MODEL@0xRANK@GROUP@HASH@SALT.data")
	}
	k, err := kv.ParseFileName(name)
	if err != nil {
		return k, "", errors.New("its name is no key of LMCache's multiprocess server, MODEL@0xRANK@GROUP@HASH; " +
			"if it is of LMCache's FS connector (MODEL@WORLD@WORKER@HASH@DTYPE), no engine of the multiprocess server finds it")
	}
	world, worker := int(k.Rank>>24), int(k.Rank>>16&0xff)
	if rank, err := kv.NewRank(world, worker, world, worker); err != nil || rank != k.Rank ||
		len(k.Hash) != blake3Size {
		return k, "", fmt.Errorf("the rank %08x is of several machines, or the hash is not of %d bytes",
			uint32(k.Rank), blake3Size)
	}
	var fits []kv.Layout
	known, chunks := false, []string{}
	for _, l := range s.layouts {
		if l.Model != k.Model || l.World != world || int(k.Group) >= len(l.Groups) {
			continue
		}
		known = true
		if l.Groups[k.Group].Bytes() == size {
			fits = append(fits, l)
		} else {
			chunks = append(chunks, fmt.Sprint(l.Groups[k.Group].Bytes()))
		}
	}
	switch {
	case !known:
		return k, "", fmt.Errorf("no engine has registered the model %q with %d workers and a group %d",
			k.Model, world, k.Group)
	case len(fits) == 0:
		return k, "", fmt.Errorf("it has %d bytes, and a chunk of %q has %s: the chunk size, the dtype or the engine is another, or the file is torn",
			size, k.Model, strings.Join(slices.Compact(chunks), " or "))
	case len(fits) > 1:
		return k, "", fmt.Errorf("%d layouts of %q have objects of %d bytes: choose by --word, or leave one in the file of --layouts", len(fits), k.Model, size)
	}
	space, err := fits[0].Space(worker, int(k.Group), k.Salt)
	return k, space, err
}

// left lists the files that are no objects.
func (s *stock) left() []leftFile {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]leftFile, 0, len(s.failed))
	for p, err := range s.failed {
		out = append(out, leftFile{p, err.Error()})
	}
	slices.SortFunc(out, func(a, b leftFile) int { return cmp.Compare(a.Path, b.Path) })
	return out
}
