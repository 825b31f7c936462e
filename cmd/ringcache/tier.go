package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/ringcache/ringcache/internal/sizes"
	"github.com/ringcache/ringcache/internal/terminal"
	"github.com/ringcache/ringcache/tier"
	"github.com/ringcache/ringcache/tier/disk"
)

type tierCommand struct {
	Ls     tierLs     `cmd:"" help:"List objects."`
	Get    tierGet    `cmd:"" help:"Write the bytes of an object to a file, or to stdout."`
	Verify tierVerify `cmd:"" help:"Read every object, and report what is damaged."`
	Copy   tierCopy   `cmd:"" help:"Copy the objects of a level to another one."`
	Rm     tierRemove `cmd:"" help:"Remove objects."`
}

// Help is the end of ringcache tier --help.
func (tierCommand) Help() string {
	return `LEVEL is where the objects are:
  a folder      of the layout native (see docs/format.md); with ?layout=vllm-ec the tree of vLLM's ECExampleConnector, with ?layout=lmcache that of
                LMCache's FS connector, and with &space=SPACE the space of its objects, which is the name of the layout otherwise. A folder
                that ringcache has opened before needs neither
  shm:NAME      a segment in shared memory
                folder:FOLDER is one that several hosts use at the same time
  a Redis       redis://HOST:PORT/DB, rediss:// with TLS, unix:///PATH, redis+cluster://, redis+sentinel://; with ?layout=lmcache&space=SPACE that of
                LMCache's connector, with ?layout=resp&space=SPACE that of its RESP adapter
  a bucket      s3://BUCKET/PREFIX?endpoint=https://HOST:PORT, with credentials in the environment or in a file

What another process serves is read beside it, and is not written to: ask that process to remove an object.

A folder, a Redis and a bucket keep a checksum of every byte (what vLLM or LMCache wrote has none). A segment keeps one
of samples for objects of more than 4 KiB.

An object is named by its space and its name, as ls prints them. The exit status is 0 if everything that was
asked for was done, 1 if not or if damage was found, and 80 if the command line is wrong.`
}

// levelArgs are the arguments that the sub-commands of tier share.
type levelArgs struct {
	Level string `arg:"" help:"A folder, folder:FOLDER, shm:NAME, or the URL of a Redis."`
	Space string `help:"Only objects of this space."`
	Dir   string `help:"Folder of shared memory, /dev/shm if empty."`
}

// use opens the level, calls f with the level and its space, and closes the level. write is set if f changes
// objects.
func (p levelArgs) use(write bool, f func(ctx context.Context, level tier.Level, space string) error) (err error) {
	ctx, stop := interruptible()
	defer stop()
	level, space, err := p.open(ctx, write, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, level.Close()) }()
	return f(ctx, level, space)
}

// listed is an object as --json prints it.
type listed struct {
	Space  string  `json:"space"`
	Name   string  `json:"name"`
	Size   int64   `json:"size"`              // bytes
	Parent string  `json:"parent,omitempty"`  // name
	Tenant string  `json:"tenant,omitempty"`  //
	Cost   float64 `json:"seconds,omitempty"` // to make it again
	Note   string  `json:"note,omitempty"`    // of the owner; bytes that are not UTF-8 are replaced
	Error  string  `json:"error,omitempty"`
}

func describe(o tier.Object, err error) listed {
	l := listed{o.Space, o.Name, o.Size, o.Parent, o.Tenant, o.Cost.Seconds(), string(o.Note), ""}
	if err != nil {
		l.Error = err.Error()
	}
	return l
}

type tierLs struct {
	levelArgs
	JSON bool `name:"json" help:"Print one JSON object for each object, and one line each."`
}

// Run lists the objects of a level.
func (c tierLs) Run() error {
	return c.use(false, func(ctx context.Context, level tier.Level, space string) error {
		w, enc := newTable(os.Stdout, "SPACE", "NAME", "BYTES", "COST", "TENANT", "PARENT"), jsonLines(os.Stdout)
		flush := func() error {
			if c.JSON {
				return nil
			}
			return w.flush()
		}
		defer reportSkipped(level)
		var n, bytes int64
		for o, err := range level.List(ctx, space) {
			if err != nil {
				return errors.Join(flush(), err)
			}
			n, bytes = n+1, bytes+o.Size
			if c.JSON {
				if err := enc.Encode(describe(o, nil)); err != nil {
					return err
				}
				continue
			}
			cost := "-" // unknown
			if o.Cost > 0 {
				cost = o.Cost.String()
			}
			w.row(printable(o.Space), printable(o.Name), size(o.Size), cost, orNone(o.Tenant), orNone(o.Parent))
		}
		if c.JSON {
			return nil
		}
		err := w.flush()
		fmt.Printf("%d objects, %s\n", n, sizes.Text(bytes))
		return err
	})
}

// reportSkipped prints how many files of a folder are not in its list.
func reportSkipped(level tier.Level) {
	folder, ok := level.(*disk.Level)
	if !ok {
		return
	}
	if s := folder.Indexed(); s.Foreign+s.Damaged+s.Unreadable > 0 {
		fmt.Fprintf(os.Stderr, "%d files are not listed: %d are damaged, %d can't be read by this user, %d are not objects; ringcache tier verify names them\n",
			s.Foreign+s.Damaged+s.Unreadable, s.Damaged, s.Unreadable, s.Foreign)
	}
}

type tierGet struct {
	levelArgs
	Name   string `arg:"" help:"Name of the object."`
	Output string `short:"o" type:"path" help:"File for the bytes, which must not exist. Without it they go to stdout."`
}

// Run writes one object.
func (c tierGet) Run() error {
	return c.use(false, func(ctx context.Context, level tier.Level, space string) (err error) {
		key := tier.Key{Space: space, Name: c.Name}
		if err := key.Validate(); err != nil {
			return err
		}
		// Memory, and not the writer: nothing is written of an object that is damaged.
		gets := []tier.Get{{Key: key}}
		level.Get(ctx, gets)
		if err := gets[0].Err; err != nil {
			return err
		}
		out := io.WriteCloser(os.Stdout)
		if c.Output != "" {
			if out, err = os.OpenFile(c.Output, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, out.Close()) }()
		}
		_, err = out.Write(gets[0].Bytes)
		return err
	})
}

type tierVerify struct {
	levelArgs
	JSON bool `name:"json" help:"Print one JSON object for each object that is not right, and one for the sum."`
}

// Help is the end of ringcache tier verify --help.
func (tierVerify) Help() string {
	return `Each line begins with what was found: damaged (bytes that are not those that were written), unreadable (a
file or folder that this user may not read, or whose device fails: it may be whole), or other (a link, a pipe, a
folder or another program's file in the place of an object).`
}

// verified is what --json prints of an object that is not right.
type verified struct {
	listed
	Kind string `json:"kind"` // damaged, unreadable or other
}

// verifySum is the last line of --json.
type verifySum struct {
	Objects    int64 `json:"objects"` // that were read, right or damaged
	Bytes      int64 `json:"bytes"`
	Damaged    int64 `json:"damaged"`
	Unreadable int64 `json:"unreadable"` // files and folders
	Other      int64 `json:"other"`      // something else in the place of an object
	Skipped    int64 `json:"skipped"`    // files at paths where the layout has no objects
}

// add counts what Verify has found, and returns its kind, "" if it is right.
func (s *verifySum) add(o tier.Object, err error) (kind string) {
	switch {
	case errors.Is(err, tier.ErrCorrupt), err == nil:
		s.Objects, s.Bytes = s.Objects+1, s.Bytes+o.Size
		if err != nil {
			s.Damaged++
			kind = "damaged"
		}
	case errors.Is(err, fs.ErrInvalid):
		s.Other++
		kind = "other"
	default:
		s.Unreadable++
		kind = "unreadable"
	}
	return kind
}

func (s *verifySum) String() string {
	text := fmt.Sprintf("%d objects with %s read, %d damaged", s.Objects, sizes.Text(s.Bytes), s.Damaged)
	if s.Unreadable > 0 {
		text += fmt.Sprintf(", %d unreadable", s.Unreadable)
	}
	if s.Other > 0 {
		text += fmt.Sprintf(", %d other", s.Other)
	}
	return text
}

// Run reads every object.
func (c tierVerify) Run() error {
	return c.use(false, func(ctx context.Context, level tier.Level, space string) error {
		var sum verifySum
		enc, view, done := jsonLines(os.Stdout), newProgress("reading"), 0
		err := verify(ctx, level, space, func(o tier.Object, err error) error {
			done++
			view.show(done, int(max(level.Usage().Objects, int64(done))))
			if errors.Is(err, disk.ErrPath) {
				sum.Skipped++
				return nil
			}
			kind := sum.add(o, err)
			if kind == "" {
				return nil
			}
			view.clear()
			if c.JSON {
				return enc.Encode(verified{describe(o, err), kind})
			}
			what := terminal.Lines(o.Key.String())
			if o.Space == "" { // a file without a head has only its path
				what = terminal.Quote(o.Name)
			}
			_, err = fmt.Printf("%s: %s: %s\n", kind, what, terminal.Lines(err.Error()))
			return err
		})
		view.end()
		if c.JSON {
			err = errors.Join(err, enc.Encode(sum))
		} else {
			fmt.Println(&sum)
			if sum.Skipped > 0 {
				fmt.Printf("%d other files lie where the layout has no objects\n", sum.Skipped)
			}
		}
		if err == nil && sum.Damaged+sum.Unreadable+sum.Other > 0 {
			err = fmt.Errorf("%s: %d objects are damaged, %d can't be read, and %d are none", printable(c.Level),
				sum.Damaged, sum.Unreadable, sum.Other)
		}
		return err
	})
}

// verify reads every object. Of a folder it reads every file: one whose head is damaged is not in the list.
func verify(ctx context.Context, level tier.Level, space string, report func(tier.Object, error) error) error {
	folder, ok := level.(*disk.Level)
	if !ok {
		return tier.Verify(ctx, level, space, report)
	}
	for v, err := range folder.Verify(ctx) {
		if err != nil {
			return err
		}
		if v.Object.Name != "" && space != "" && v.Object.Space != space {
			continue // not asked for
		}
		if v.Object.Name == "" {
			v.Object.Name = v.Path
		}
		if err := report(v.Object, v.Err); err != nil {
			return err
		}
	}
	return nil
}

type tierRemove struct {
	levelArgs
	Names []string `arg:"" optional:"" help:"Names of objects of the space."`
	All   bool     `help:"All objects of the space."`
	JSON  bool     `name:"json" help:"Print one JSON object for each object."`
}

// Run removes objects.
func (c tierRemove) Run() error {
	if c.All == (len(c.Names) > 0) {
		return errors.New("give the names of the objects, or --all and --space")
	}
	return c.use(true, func(ctx context.Context, level tier.Level, space string) error {
		if space == "" {
			return errors.New("--space is missing: an object is named by its space and its name")
		}
		var keys []tier.Key
		for _, n := range c.Names {
			keys = append(keys, tier.Key{Space: space, Name: n})
		}
		if c.All {
			for o, err := range level.List(ctx, space) {
				if err != nil {
					return err
				}
				keys = append(keys, o.Key)
			}
		}
		enc := jsonLines(os.Stdout)
		failed := 0
		for batch := range slices.Chunk(keys, 64) {
			for i, err := range level.Delete(ctx, batch) {
				if err != nil {
					failed++
				}
				switch {
				case c.JSON:
					if err := enc.Encode(describe(tier.Object{Key: batch[i]}, err)); err != nil {
						return err
					}
				case err != nil:
					fmt.Printf("%s: %s\n", terminal.Lines(batch[i].String()), terminal.Lines(err.Error()))
				}
			}
		}
		if !c.JSON {
			fmt.Printf("%d objects removed\n", len(keys)-failed)
		}
		if failed > 0 {
			return fmt.Errorf("%s: %d objects were not removed", c.Level, failed)
		}
		return nil
	})
}
