package coordinator

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/ringcache/ringcache/internal/loglimit"
	"github.com/ringcache/ringcache/kv"
)

// A Chunk is an object in the memory of a server, of one worker and group.
type Chunk struct {
	Space Space
	Hash  string // its bytes, not hexadecimal
	Size  int64  // bytes
}

// A Space is what chunks of one model, worker, group and salt share in their keys.
type Space struct {
	Model string
	Rank  kv.Rank
	Group uint32
	Salt  string
}

// ReporterOptions say what a Reporter tells, and to whom. All but Interval, Heartbeat and Logger are needed.
type ReporterOptions struct {
	URL      string // of the coordinator, such as http://10.0.0.1:9300
	Instance string // unique among the servers of the coordinator
	HTTPPort int    // of this server
	// Chunks lists what is in memory, each object once. It may cost time: lists are made while something changes,
	// and take at most a fiftieth of the time.
	Chunks func(ctx context.Context) iter.Seq2[Chunk, error]
	// Changes returns another number when Chunks may list something else than before.
	Changes func() int64
	// ChunkTokens returns the tokens of a chunk, 0 while engines have not agreed on it.
	ChunkTokens func() int
	Interval    time.Duration // the least time between lists; 0 is a second
	Heartbeat   time.Duration // 0 is 5 seconds
	Logger      *slog.Logger  // nil is silent
}

// Bounds of what a Reporter sends, and for how long it waits.
const (
	batchEntries  = 1000
	answerTime    = 10 * time.Second
	leaveTime     = 2 * time.Second
	longestRepeat = 30 * time.Second
	listShare     = 50 // a list may take one part in so many of the time
)

// A Reporter registers a server at a coordinator, LMCache's or ours, and keeps it told what the server has in
// memory. It does what a server of LMCache 0.5.7 does (lmcache/v1/mp_coordinator/registrar.py and
// cache_events.py), but for two things: it loses no event, and it tells all that there is to a coordinator that
// does not know the server. What is in memory is found by comparing lists, so it tells no tokens and no uses.
//
// See docs/decisions.md, "A coordinator is told by comparing lists of memory".
type Reporter struct {
	o      ReporterOptions
	client *http.Client
	base   string
	failed loglimit.Limit

	registered  bool
	beat        time.Time // when the coordinator has answered last
	told        map[Space]map[string]uint32
	round       uint32 // of the list in which an object of told was seen
	pending     []batch
	chunk       int // tokens that the coordinator knows a chunk to have
	incarnation int64
	skip        int64 // how far the incarnation grows when the coordinator knows a later one
	seq         int64
	changes     int64
	listed      time.Time // when the next list may be made
	repeat      time.Duration
}

// NewReporter returns a reporter, which tells nothing before Run.
func NewReporter(o ReporterOptions) (*Reporter, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" ||
		u.User != nil || u.RawQuery != "" || u.Fragment != "" { // it is logged, so it may have no password
		return nil, invalid("the coordinator's URL is not http://HOST:PORT")
	}
	if o.Instance == "" || len(o.Instance) > maxName || o.Instance == sharedHolder || strings.Contains(o.Instance, "/") {
		return nil, invalid("the instance %.40q is empty, taken, has a slash, or more than %d bytes", o.Instance, maxName)
	}
	o.Interval, o.Heartbeat = cmp.Or(o.Interval, time.Second), cmp.Or(o.Heartbeat, 5*time.Second)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Reporter{
		o: o, base: strings.TrimRight(o.URL, "/"), client: &http.Client{Timeout: answerTime, Transport: &http.Transport{}},
	}
	r.startAnew()
	return r, nil
}

// startAnew makes the next reports those of a server that has just begun: the coordinator drops what it knew.
func (r *Reporter) startAnew() {
	r.incarnation = max(time.Now().Unix(), r.incarnation+1+r.skip)
	r.told, r.pending, r.seq, r.changes, r.listed = map[Space]map[string]uint32{}, nil, 0, -1, time.Time{}
}

// Run reports until ctx ends. Then it tells the coordinator that the server leaves.
func (r *Reporter) Run(ctx context.Context) {
	defer r.client.CloseIdleConnections()
	for {
		wait := r.o.Interval
		if err := r.step(ctx); err != nil && ctx.Err() == nil {
			r.failed.Warn(r.o.Logger, "the coordinator is not told what this server has; it is tried again",
				"coordinator", r.base, "error", err)
			r.repeat = min(max(2*r.repeat, r.o.Interval), longestRepeat)
			wait = r.repeat
		} else {
			r.repeat = 0
		}
		select {
		case <-ctx.Done():
			r.leave()
			return
		case <-time.After(wait):
		}
	}
}

// step does what is due.
func (r *Reporter) step(ctx context.Context) error {
	if err := r.stayRegistered(ctx); err != nil {
		return err
	}
	if err := r.bind(ctx); err != nil {
		return err
	}
	if len(r.pending) == 0 {
		if err := r.compare(ctx); err != nil {
			return err
		}
	}
	for len(r.pending) > 0 {
		if err := r.send(ctx, r.pending[0]); err != nil {
			return err
		}
		r.pending = r.pending[min(1, len(r.pending)):]
		if time.Since(r.beat) >= r.o.Heartbeat { // a long list
			if err := r.stayRegistered(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// stayRegistered registers, or says that this server lives.
func (r *Reporter) stayRegistered(ctx context.Context) error {
	switch {
	case !r.registered:
		q := registerRequest{Instance: r.o.Instance, IP: r.address(), Port: r.o.HTTPPort, Metadata: map[string]string{}}
		if _, err := r.ask(ctx, http.MethodPost, "/instances", q, nil); err != nil {
			return err
		}
		r.registered, r.chunk = true, 0
		r.o.Logger.Info("registered at the coordinator", "coordinator", r.base, "instance", r.o.Instance)
	case time.Since(r.beat) < r.o.Heartbeat:
		return nil
	default:
		status, err := r.ask(ctx, http.MethodPut, "/instances/"+url.PathEscape(r.o.Instance)+"/heartbeat", nil, nil)
		if status == http.StatusNotFound { // it began anew, or has dropped this server
			r.registered = false
			r.startAnew()
			return r.stayRegistered(ctx)
		}
		if err != nil {
			return err
		}
	}
	r.beat = time.Now()
	return nil
}

// bind makes the coordinator hash tokens in chunks as engines have agreed on.
func (r *Reporter) bind(ctx context.Context) error {
	n := r.o.ChunkTokens()
	if n == r.chunk || n == 0 {
		return nil
	}
	status, err := r.ask(ctx, http.MethodPut, "/config/chunk-size", map[string]int{"chunk_size": n}, nil)
	if err != nil && status != http.StatusNotFound { // that of 0.5.6 has a size of its own
		return err
	}
	r.chunk = n
	return nil
}

// address is that of this server on the way to the coordinator.
func (r *Reporter) address() string {
	u, err := url.Parse(r.base)
	if err != nil { // NewReporter has parsed it
		return "127.0.0.1"
	}
	c, err := net.Dial("udp", net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "80"))) //nolint:noctx // it sends nothing
	if err != nil {
		return "127.0.0.1"
	}
	defer func() { _ = c.Close() }()
	host, _, _ := net.SplitHostPort(c.LocalAddr().String())
	return host
}

// compare makes pending what has changed since the last list.
func (r *Reporter) compare(ctx context.Context) error {
	changes, begin := r.o.Changes(), time.Now()
	if changes == r.changes || begin.Before(r.listed) {
		return nil
	}
	r.round++
	var stored []entry
	for c, err := range r.o.Chunks(ctx) {
		if err != nil { // what was not seen may be there
			r.add(store, stored)
			return err
		}
		chunks := r.told[c.Space]
		if chunks == nil {
			chunks = map[string]uint32{}
			r.told[c.Space] = chunks
		}
		if _, told := chunks[c.Hash]; !told {
			stored = append(stored, entry{Key: c.Space.key(c.Hash), Size: c.Size})
		}
		chunks[c.Hash] = r.round
	}
	var removed []entry
	for space, chunks := range r.told {
		for hash, round := range chunks {
			if round != r.round {
				removed = append(removed, entry{Key: space.key(hash)})
				delete(chunks, hash)
			}
		}
		if len(chunks) == 0 {
			delete(r.told, space)
		}
	}
	r.changes, r.listed = changes, begin.Add(listShare*time.Since(begin))
	r.add(remove, removed)
	r.add(store, stored)
	return nil
}

func (s Space) key(hash string) *encodedKey {
	rank := int64(s.Rank)
	return &encodedKey{
		Hash: hex.EncodeToString([]byte(hash)), Model: s.Model, Rank: &rank, Group: int64(s.Group), Salt: s.Salt,
	}
}

// add appends batches to what is pending.
func (r *Reporter) add(kind string, all []entry) {
	backend, offset, incarnation := "dram", int64(unknownOffset), r.incarnation
	for len(all) > 0 {
		n := min(len(all), batchEntries)
		for i := range all[:n] {
			all[i].Tokens, all[i].Offset = []int64{}, &offset
		}
		r.seq++
		r.pending = append(r.pending, batch{
			Instance: r.o.Instance, Incarnation: &incarnation, Seq: r.seq, Type: kind, Tier: "l1", Backend: &backend,
			Entries: all[:n], Time: float64(time.Now().UnixMicro()) / 1e6,
		})
		all = all[n:]
	}
}

// send sends a batch. One that the coordinator has already is a duplicate to it.
func (r *Reporter) send(ctx context.Context, b batch) error {
	var answer eventsResponse
	if _, err := r.ask(ctx, http.MethodPost, "/events", eventsRequest{Batches: []batch{b}}, &answer); err != nil {
		return err
	}
	if answer.Stale > 0 { // it knows a later incarnation: of a clock that was set back since
		r.skip = max(1, 2*r.skip)
		r.startAnew()
		return fmt.Errorf("coordinator: it knows a later start of the instance %q than %d: is the name used twice?",
			r.o.Instance, *b.Incarnation)
	}
	r.skip = 0
	return nil
}

// leave tells that this server ends.
func (r *Reporter) leave() {
	if !r.registered {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
	defer cancel()
	_, _ = r.ask(ctx, http.MethodDelete, "/instances/"+url.PathEscape(r.o.Instance), nil, nil) // it expires there anyway
}

// ask sends a request with a body of JSON, unless that is nil, and reads the answer.
func (r *Reporter) ask(ctx context.Context, method, path string, body, answer any) (status int, err error) {
	var text []byte
	if body != nil {
		if text, err = json.Marshal(body); err != nil {
			return 0, fmt.Errorf("coordinator: %w", err)
		}
	}
	q, err := http.NewRequestWithContext(ctx, method, r.base+path, bytes.NewReader(text))
	if err != nil {
		return 0, fmt.Errorf("coordinator: %w", err)
	}
	q.Header.Set("Content-Type", "application/json")
	p, err := r.client.Do(q)
	if err != nil {
		return 0, fmt.Errorf("coordinator: %w", err)
	}
	defer func() { _ = p.Body.Close() }()
	text, err = io.ReadAll(io.LimitReader(p.Body, smallBody))
	switch {
	case err != nil:
		return p.StatusCode, fmt.Errorf("coordinator: %s %s: %w", method, path, err)
	case p.StatusCode/100 != 2:
		return p.StatusCode, fmt.Errorf("coordinator: %s %s: %s: %.200q", method, path, p.Status, text)
	case answer == nil:
		return p.StatusCode, nil
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return p.StatusCode, fmt.Errorf("coordinator: %s %s: %w", method, path, err)
	}
	return p.StatusCode, nil
}
