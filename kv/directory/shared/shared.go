package shared

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/ringcache/ringcache/internal/loglimit"
	"github.com/ringcache/ringcache/kv/directory"
	"github.com/ringcache/ringcache/tier/redis"
)

// Options of a State. Directory is needed, with its Options.Shared.
type Options struct {
	Directory *directory.Directory
	URL       string // of the Redis, as tier/redis has it
	// User and Password are of an ACL, if the URL has none.
	User, Password string
	// Face is a part of the keys: directories with different reports are apart.
	Face string
	// Timeout is how long a worker stays whose directory has ended. 0 is for ever.
	Timeout time.Duration
	// Interval is the time between two exchanges with Redis. 0 is 50 ms. What happens seldom is a multiple of it.
	Interval time.Duration
	Logger   *slog.Logger // nil is silent
}

const (
	seldom     = 20       // intervals: between signs of life, and after an error
	leaseTime  = 300      // intervals
	maxLog     = 16 << 10 // entries
	maxEntry   = 60 << 10 // bytes; the guard of tier/redis allows 64 KiB
	maxKeys    = 1024     // of one change: the script has room on its stack for 8,000
	atOnce     = 32       // entries that are read
	farewell   = 2 * time.Second
	maxPages   = 1 << 20 // of SSCAN
	pageSize   = 1000
	maxWorkers = 1 << 20
)

// State is what directories share.
type State struct {
	o      Options
	level  *redis.Level
	client goredis.UniversalClient
	prefix string
	me     string // this directory, in Redis
	odd    loglimit.Limit

	// Of Open, and then of Run.
	epoch   string
	server  string // the process of Redis; empty before all that is known was loaded
	last    int64  // number of the last entry that was seen
	count   int64  // the number of the last entry, as it was lately
	beaten  time.Time
	records map[directory.ID]*record

	up     atomic.Bool
	counts struct{ told, applied, loads, conflicts, unreadable, errors atomic.Int64 }
}

// record is what is known of a worker's record in Redis.
type record struct {
	at      int64     // its last entry; 0 if it is not there
	by      string    // who told it; this directory, too, if reports come here
	refused int       // changes in a row, since another one was there
	orphan  time.Time // since when its directory has no lease
}

//go:embed write.lua
var writeSource string

var write = goredis.NewScript(writeSource)

// Open loads what is known. A Redis that does not answer is no error: Run tries again.
func Open(ctx context.Context, o Options) (*State, error) {
	if o.Directory == nil || o.Face == "" {
		return nil, fmt.Errorf("shared: there is no Directory, or no Face: %w", fs.ErrInvalid)
	}
	level, err := redis.Open(ctx, redis.Options{URL: o.URL, User: o.User, Password: o.Password})
	if err != nil {
		return nil, err
	}
	return begin(ctx, o, level)
}

func begin(ctx context.Context, o Options, level *redis.Level) (*State, error) {
	o.Interval = cmp.Or(o.Interval, 50*time.Millisecond)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &State{o: o, level: level, me: rand.Text(), records: map[directory.ID]*record{}}
	var prefix string
	s.client, prefix = level.Client()
	s.prefix = "directory:" + prefix + o.Face + ":"
	if _, is := s.client.(*goredis.ClusterClient); is {
		_ = level.Close() // the other error counts
		return nil, fmt.Errorf("shared: the state is in one server, not in a cluster: %w", fs.ErrInvalid)
	}
	s.report(ctx, s.try(ctx, s.beat))
	return s, nil
}

// Counts are what a State has done.
type Counts struct {
	Up         bool  // the last exchange with Redis went well
	Told       int64 // changes of this directory that are in Redis
	Applied    int64 // changes of others
	Loads      int64 // of all that Redis has
	Conflicts  int64 // workers of which two directories had news at a time
	Unreadable int64 // records, entries and keys that were skipped
	Errors     int64 // exchanges that failed
}

// Counts returns them.
func (s *State) Counts() Counts {
	c := &s.counts
	return Counts{
		s.up.Load(), c.told.Load(), c.applied.Load(), c.loads.Load(), c.conflicts.Load(), c.unreadable.Load(),
		c.errors.Load(),
	}
}

// Run tells and applies changes until ctx ends. Then it tells the last ones, in two seconds at most, and closes the
// connections.
func (s *State) Run(ctx context.Context) {
	for ctx.Err() == nil {
		wait := s.o.Interval
		if err := s.try(ctx, s.round); err != nil {
			wait *= seldom
			s.report(ctx, err)
		} else {
			s.report(ctx, nil)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	s.report(last, s.try(last, func(ctx context.Context) error {
		if err := s.round(ctx); err != nil {
			return err
		}
		return s.client.Del(ctx, s.prefix+"lease:"+s.me).Err()
	}))
	_ = s.level.Close() // what is to be told was told
}

// report counts how an exchange ended, and says so when that changes.
func (s *State) report(ctx context.Context, err error) {
	switch {
	case err == nil:
		if !s.up.Swap(true) {
			s.o.Logger.Info("the shared state is in use", "face", s.o.Face, "workers", len(s.records))
		}
	case ctx.Err() == nil:
		s.up.Store(false)
		s.counts.errors.Add(1)
		s.odd.Warn(s.o.Logger, "the shared state is not in use", "face", s.o.Face, "err", err)
	}
}

// unreadable counts what can't be read, and goes on.
func (s *State) unreadable(err error) {
	s.counts.unreadable.Add(1)
	s.odd.Warn(s.o.Logger, "a part of the shared state was skipped", "face", s.o.Face, "err", err)
}

// skip is unreadable for errors that are about one worker. It returns the others.
func (s *State) skip(err error) error {
	if errors.Is(err, fs.ErrInvalid) || errors.Is(err, directory.ErrFull) || errors.Is(err, directory.ErrUnknown) {
		s.unreadable(err)
		return nil
	}
	return err
}

// try turns a panic of the client into an error.
func (s *State) try(ctx context.Context, do func(context.Context) error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			s.server = "" // whatever it was in the midst of
			err = fmt.Errorf("shared: a panic: %v: please report it: %s", v, debug.Stack())
		}
	}()
	return do(ctx)
}

// round exchanges what is new.
func (s *State) round(ctx context.Context) error {
	if s.server == "" || time.Since(s.beaten) >= seldom*s.o.Interval {
		if err := s.beat(ctx); err != nil {
			return err
		}
	}
	if err := s.follow(ctx); err != nil {
		return err
	}
	return s.flush(ctx)
}

// beat says that this directory lives, and looks who else does, and whether the state is still the same.
func (s *State) beat(ctx context.Context) error {
	owners := map[string]*goredis.IntCmd{}
	pipe := s.client.Pipeline()
	pipe.SetNX(ctx, s.prefix+"epoch", rand.Text(), 0)
	epoch := pipe.Get(ctx, s.prefix+"epoch")
	pipe.Set(ctx, s.prefix+"lease:"+s.me, "", leaseTime*s.o.Interval)
	count := pipe.Get(ctx, s.prefix+"count")
	info := pipe.Info(ctx, "server")
	for _, r := range s.records {
		if r.by != s.me && owners[r.by] == nil {
			owners[r.by] = pipe.Exists(ctx, s.prefix+"lease:"+r.by)
		}
	}
	cmds, err := pipe.Exec(ctx)
	for _, c := range cmds {
		if c.Err() != nil && !errors.Is(c.Err(), goredis.Nil) {
			return fmt.Errorf("shared: %s: %w", c.Name(), c.Err())
		}
	}
	if err != nil && !errors.Is(err, goredis.Nil) {
		return fmt.Errorf("shared: %w", err)
	}
	n, err := count.Int64()
	if err != nil && !errors.Is(err, goredis.Nil) || n < 0 {
		return fmt.Errorf("%w: count is %.40q", errRead, count.Val())
	}
	_, rest, _ := strings.Cut(info.Val(), "run_id:")
	server, _, _ := strings.Cut(rest, "\r\n")
	server = cmp.Or(server, "unknown")
	if s.server != server || s.epoch != epoch.Val() || n < s.last {
		if err := s.agree(ctx, epoch.Val(), server, n); err != nil {
			return err
		}
	}
	s.beaten, s.count = time.Now(), n
	s.orphans(owners)
	return nil
}

// orphans drops the workers whose directory has ended, when nobody has taken them over for long.
func (s *State) orphans(owners map[string]*goredis.IntCmd) {
	for id, r := range s.records {
		switch lease := owners[r.by]; {
		case lease == nil: // it is new, or of this directory
		case lease.Val() > 0:
			r.orphan = time.Time{}
		case r.orphan.IsZero():
			r.orphan = time.Now()
		case s.o.Timeout > 0 && time.Since(r.orphan) > s.o.Timeout:
			s.o.Directory.Orphaned(id)
		}
	}
}

// agree makes a state that is new, or may have lost something, and this directory agree: who speaks for a worker tells
// it again in full.
func (s *State) agree(ctx context.Context, epoch, server string, count int64) error {
	again := s.server != "" || s.epoch != ""
	if s.server, s.epoch = "", epoch; again {
		for _, r := range s.records {
			r.at = 0
		}
		s.o.Logger.Info("the shared state has begun anew", "face", s.o.Face)
	}
	if err := s.load(ctx, count, again); err != nil {
		return err
	}
	if again {
		for _, w := range s.o.Directory.Workers("") {
			s.o.Directory.Again(w.ID)
		}
	}
	s.server = server
	return nil
}

// follow applies the entries that are new.
func (s *State) follow(ctx context.Context) error {
	for {
		entries, err := s.client.XRangeN(ctx, s.prefix+"log", fmt.Sprintf("%d-0", s.last+1), "+", atOnce).Result()
		if err != nil {
			return fmt.Errorf("shared: the log: %w", err)
		}
		for _, e := range entries {
			if e.ID != fmt.Sprintf("%d-0", s.last+1) {
				return s.reload(ctx)
			}
			if err := s.apply(ctx, s.last+1, e.Values); err != nil {
				return err
			}
			s.last++
		}
		if len(entries) == 0 && s.last < s.count {
			return s.reload(ctx)
		}
		if len(entries) < atOnce {
			return nil
		}
	}
}

// reload loads everything again, after the log was cut.
func (s *State) reload(ctx context.Context) error {
	n, err := s.client.Get(ctx, s.prefix+"count").Int64()
	if err != nil && !errors.Is(err, goredis.Nil) {
		return fmt.Errorf("shared: count: %w", err)
	}
	return s.load(ctx, n, false)
}

// apply applies one entry. What can't be read is skipped.
func (s *State) apply(ctx context.Context, n int64, fields map[string]any) error {
	by, _ := fields["by"].(string)
	text, _ := fields["c"].(string)
	if by == "" || text == "" {
		s.unreadable(fmt.Errorf("%w: entry %d", errRead, n))
		return nil
	}
	news := map[directory.ID]bool{} // an entry may have several changes of a worker
	for rest := []byte(text); len(rest) > 0; {
		c, more, err := decodeChange(rest)
		if err != nil {
			s.unreadable(fmt.Errorf("entry %d: %w", n, err))
			return nil
		}
		rest = more
		id := c.Worker.ID
		r := s.records[id]
		switch {
		case r != nil && n <= r.at && !news[id]:
		case by == s.me: // this directory did not hear that it was written
			s.wrote(c, n)
		default:
			err := s.take(c, n, by)
			if news[id] = true; errors.Is(err, directory.ErrUnknown) {
				news[id] = false
				err = s.loadOne(ctx, id)
			}
			if err := s.skip(err); err != nil {
				return err
			}
		}
	}
	return nil
}

// take has the directory follow a change.
func (s *State) take(c directory.Change, n int64, by string) error {
	kept, err := s.o.Directory.Follow(c)
	if errors.Is(err, directory.ErrUnknown) || errors.Is(err, fs.ErrInvalid) {
		return err
	}
	if _, known := s.o.Directory.Worker(c.Worker.ID); !known && !kept {
		delete(s.records, c.Worker.ID)
		return err
	}
	s.counts.applied.Add(1)
	if kept {
		s.counts.conflicts.Add(1)
		by = s.me
	}
	if c.Gone {
		n = 0
	}
	s.records[c.Worker.ID] = &record{at: n, by: by}
	return err
}

// flush tells what has changed here.
func (s *State) flush(ctx context.Context) error {
	for {
		changes := s.o.Directory.Changes(maxKeys)
		if len(changes) == 0 {
			return nil
		}
		whole := map[directory.ID]bool{}
		changes = slices.DeleteFunc(changes, func(c directory.Change) bool {
			id := c.Worker.ID
			if whole[id] = whole[id] || c.Reset || c.Gone; whole[id] || s.at(id) > 0 {
				return false
			}
			s.o.Directory.Again(id) // it is taken over from a directory whose record is lost
			return true
		})
		for len(changes) > 0 {
			n, again, err := s.tell(ctx, changes)
			if changes = changes[n:]; err == nil && !again {
				continue
			}
			for _, c := range changes {
				s.o.Directory.Failed(c)
			}
			return err // or the next round sees why
		}
	}
}

// tell writes the first changes, in one entry, and returns how many are settled. again says that the state has changed.
func (s *State) tell(ctx context.Context, changes []directory.Change) (n int, again bool, err error) {
	args := []any{s.epoch, s.me, maxLog}
	for size := 0; n < len(changes); n++ {
		b := appendChange(nil, changes[n], s.at(changes[n].Worker.ID))
		if size += len(b); size > maxEntry && n > 0 {
			break
		}
		args = append(args, b)
	}
	answer, err := write.Run(ctx, s.client, []string{s.prefix}, args...).Result()
	if err != nil {
		return 0, false, fmt.Errorf("shared: a change: %w", err)
	}
	list, _ := answer.([]any)
	if len(list) != n+1 {
		s.server = "" // another epoch
		return 0, true, nil
	}
	text, _ := list[0].(string)
	entry, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, false, fmt.Errorf("%w: the number of an entry: %.40q", errRead, text)
	}
	for i, c := range changes[:n] {
		if list[i+1] == int64(1) {
			s.counts.told.Add(1)
			s.wrote(c, entry)
			continue
		}
		again = true
		s.o.Directory.Failed(c)
	}
	for i, c := range changes[:n] {
		if list[i+1] != int64(1) && err == nil {
			err = s.refused(ctx, c.Worker.ID)
		}
	}
	return n, again, err
}

func (s *State) at(id directory.ID) int64 {
	if r := s.records[id]; r != nil {
		return r.at
	}
	return 0
}

func (s *State) wrote(c directory.Change, n int64) {
	if c.Gone {
		delete(s.records, c.Worker.ID)
		return
	}
	s.records[c.Worker.ID] = &record{at: n, by: s.me}
}

// refused is about a worker of which the state has something that this directory has not seen. The log tells it, or else
// the record does.
func (s *State) refused(ctx context.Context, id directory.ID) error {
	r := s.records[id]
	if r == nil {
		r = &record{by: s.me}
		s.records[id] = r
	}
	if r.refused++; r.refused < 3 {
		return nil
	}
	r.refused = 0
	return s.loadOne(ctx, id)
}
