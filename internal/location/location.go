// Package location reads where a level of objects is, in one spelling for all that open levels: the daemon, the
// command and the agent.
//
//	shm:NAME                                  a segment in shared memory
//	FOLDER[?layout=L][&space=S][&shared=B]    a folder of one process
//	folder:FOLDER[?layout=L][&space=S]        a folder that several hosts use at the same time
//	redis://..., rediss://..., unix://...     a Redis, as package tier/redis has it
//	s3://BUCKET/PREFIX?endpoint=URL           a bucket, as package tier/s3 has it
//
// The options of a folder are escaped as in URLs. layout is native, vllm-ec (the tree of vLLM's
// ECExampleConnector) or lmcache (that of LMCache's FS connector); a folder that was opened before has its
// layout and its space by itself. shared says whether other programs write to the folder, too; it is true
// unless the layout is native. A folder that several hosts use is of the layout native or lmcache.
package location

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/ringcache/ringcache/encoder"
	"github.com/ringcache/ringcache/internal/shmfile"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/disk"
	"github.com/ringcache/ringcache/tier/folder"
	"github.com/ringcache/ringcache/tier/memory"
	"github.com/ringcache/ringcache/tier/redis"
	"github.com/ringcache/ringcache/tier/s3"
)

// Location is where a level is. One of Segment, URL and Folder is set.
type Location struct {
	Segment string // in the directory of shared memory
	URL     string // of a Redis, or of a bucket
	Folder  string
	Hosts   bool // several hosts use the folder at the same time, as package tier/folder has it

	// Of a folder. Layout is nil, and Space empty, if the text does not say them.
	Layout disk.Layout
	Space  string
	Shared bool
}

// layouts are those of folders.
var layouts = []disk.Layout{disk.Native{}, encoder.Tree{}, disk.LMCache{}}

func layoutNames() string {
	var names []string
	for _, l := range layouts {
		names = append(names, l.Name())
	}
	return strings.Join(names, ", ")
}

func layoutNamed(name string) (disk.Layout, error) {
	for _, l := range layouts {
		if l.Name() == name {
			return l, nil
		}
	}
	return nil, fmt.Errorf("the layout %q is not one of %s: %w", name, layoutNames(), fs.ErrInvalid)
}

// Parse reads a text. It opens nothing. What is wrong is an fs.ErrInvalid.
func Parse(text string) (Location, error) {
	if name, ok := strings.CutPrefix(text, "shm:"); ok {
		if name == "" {
			return Location{}, fmt.Errorf("shm: is followed by no name of a segment: %w", fs.ErrInvalid)
		}
		return Location{Segment: name}, nil
	}
	if isBucket(text) {
		return Location{URL: text}, s3.Options{URL: text}.Validate()
	}
	if strings.Contains(text, "://") {
		return Location{URL: text}, redis.Options{URL: text}.Validate()
	}
	l := Location{Folder: text}
	l.Folder, l.Hosts = strings.CutPrefix(text, "folder:")
	text = l.Folder
	if i := strings.LastIndexByte(text, '?'); i >= 0 && strings.Contains(text[i:], "=") {
		l.Folder = text[:i]
		if err := l.set(text[i+1:]); err != nil {
			return Location{}, fmt.Errorf("%s: %w", text, err)
		}
	}
	switch {
	case l.Folder == "":
		return Location{}, fmt.Errorf("the folder has no name: %w", fs.ErrInvalid)
	case l.Hosts && l.Layout != nil && l.Layout.Name() == encoder.Tree{}.Name():
		return Location{}, fmt.Errorf("%s: a folder that several hosts use is of the layout %s or %s: the layout %s has a folder for each object: %w",
			text, disk.Native{}.Name(), disk.LMCache{}.Name(), l.Layout.Name(), fs.ErrInvalid)
	}
	return l, nil
}

// isBucket reports whether a text is the URL of a bucket.
func isBucket(text string) bool { return strings.HasPrefix(text, "s3://") }

// set reads the options of a folder.
func (l *Location) set(query string) error {
	options, err := url.ParseQuery(query)
	if err != nil {
		return fmt.Errorf("%w: %w", fs.ErrInvalid, err)
	}
	for key, values := range options {
		if len(values) > 1 {
			return fmt.Errorf("the option %q is there more than once: %w", key, fs.ErrInvalid)
		}
		switch value := values[0]; {
		case key == "space":
			l.Space = value
		case key == "layout":
			if l.Layout, err = layoutNamed(value); err != nil {
				return err
			}
		case key == "shared" && l.Hosts:
			return fmt.Errorf("folder: takes the options layout and space, and not shared: other programs may always use the folder: %w", fs.ErrInvalid)
		case key == "shared" && (value == "true" || value == "false"):
			l.Shared = value == "true"
		case key == "shared":
			return fmt.Errorf("shared is %q, want true or false: %w", value, fs.ErrInvalid)
		default:
			return fmt.Errorf("a folder takes the options layout, space and shared, and not %q: %w", key, fs.ErrInvalid)
		}
	}
	if !options.Has("shared") {
		l.Shared = l.foreign()
	}
	return nil
}

// foreign reports whether the layout is another program's, which may use the folder, too.
func (l Location) foreign() bool { return l.Layout != nil && l.Layout.Name() != disk.Native{}.Name() }

// NeedsSpace reports whether files of the layout do not contain the space of their objects. That is all that a disk
// could refuse of a layout without options.
func (l Location) NeedsSpace() bool { return disk.Options{Layout: l.Layout}.Validate() != nil }

// Identify returns a folder's location with its layout, space and Shared: what the text does not say, the
// folder does, if it was opened before. Another folder, also one that is not there, is of the layout native
// if create is set, and an fs.ErrNotExist otherwise. A location that is no folder is returned as it is.
func (l Location) Identify(create bool) (Location, error) {
	if l.Folder == "" {
		return l, nil
	}
	identify := disk.Identify
	if l.Hosts {
		identify = folder.Identify
	}
	name, space, err := identify(l.Folder)
	switch {
	case err == nil && l.Layout == nil:
		if l.Layout, err = layoutNamed(name); err != nil {
			return l, fmt.Errorf("%s is of another release: %w", l.Folder, err)
		}
		l.Shared = l.Shared || l.foreign()
	case err == nil && l.Layout.Name() != name:
		return l, fmt.Errorf("%s is a root of the layout %s, not %s: %w",
			l.Folder, name, l.Layout.Name(), fs.ErrInvalid)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return l, err
	case err != nil && l.Layout == nil:
		if !create {
			if _, err := os.Stat(l.Folder); err != nil {
				return l, err
			}
			return l, fmt.Errorf("%[1]s is not a folder of objects; if it is a tree of vLLM's ECExampleConnector, write %[1]s?layout=%[2]s; of LMCache's FS connector, %[1]s?layout=%[3]s: %[4]w",
				l.Folder, encoder.Tree{}.Name(), disk.LMCache{}.Name(), fs.ErrNotExist)
		}
		l.Layout = disk.Native{}
	}
	l.Space = cmp.Or(l.Space, space)
	if l.Space == "" && l.NeedsSpace() {
		l.Space = l.Layout.Name()
	}
	return l, nil
}

// DiskOptions are those that the location of a folder says.
func (l Location) DiskOptions() disk.Options {
	return disk.Options{Layout: l.Layout, Space: l.Space, Shared: l.Shared}
}

// FolderOptions are those that the location of a folder which several hosts use says.
func (l Location) FolderOptions() folder.Options {
	return folder.Options{Layout: l.Layout, Space: l.Space}
}

// Options are for Open.
type Options struct {
	ShmDir   string // directory of shared memory, /dev/shm if empty
	Size     int64  // bytes of a segment that is made; 0 opens one that is there
	Capacity int64  // of a folder, as in disk.Options
	// ReadOnly opens the level beside the process that serves it.
	ReadOnly bool
}

// Open opens the level of an identified location.
func (l Location) Open(ctx context.Context, o Options) (tier.Level, error) {
	switch {
	case l.Segment != "":
		return l.openSegment(o)
	case isBucket(l.URL):
		b, err := s3.Open(ctx, s3.Options{URL: l.URL})
		if err != nil {
			return nil, err
		}
		return b, nil
	case l.URL != "":
		r, err := redis.Open(ctx, redis.Options{URL: l.URL})
		if err != nil {
			return nil, err
		}
		return r, nil
	}
	if l.Hosts {
		options := l.FolderOptions()
		options.Capacity = o.Capacity
		f, err := folder.Open(ctx, l.Folder, options)
		if err != nil {
			return nil, err
		}
		return f, nil
	}
	options := l.DiskOptions()
	options.Capacity, options.ReadOnly = o.Capacity, o.ReadOnly
	d, err := disk.Open(l.Folder, options)
	if err != nil {
		return nil, err
	}
	return d, nil
}

func (l Location) openSegment(o Options) (level tier.Level, err error) {
	if o.ReadOnly {
		level, err = memory.Look(l.Segment, o.ShmDir)
	} else {
		level, err = memory.Open(memory.Options{Name: l.Segment, Size: o.Size, Dir: o.ShmDir})
	}
	if err == nil {
		return level, nil
	}
	dir := cmp.Or(o.ShmDir, shmfile.DefaultDir)
	if _, gone := os.Stat(filepath.Join(dir, l.Segment)); o.Size == 0 && errors.Is(gone, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no segment %q in %s; ringcache serve status names that of a daemon: %w",
			l.Segment, dir, fs.ErrNotExist)
	}
	return nil, err
}
