package coordinator

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"

	"github.com/ringcache/ringcache/internal/sentinel"
	"github.com/ringcache/ringcache/kv"
)

// errInvalid is what every refusal of a request wraps. It is an fs.ErrInvalid.
var errInvalid = sentinel.New(sentinel.Invalid, "coordinator: invalid request")

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errInvalid}, args...)...)
}

// The bodies of LMCache 0.5.7's coordinator (lmcache/v1/mp_coordinator/schemas.py and api.py). A pointer is a
// field that has to be there, or one whose absence says something.

// encodedKey is the name of an object.
type encodedKey struct {
	Hash  string `json:"chunk_hash_hex"`
	Model string `json:"model_name"`
	Rank  *int64 `json:"kv_rank"`
	Group int64  `json:"object_group_id"`
	Salt  string `json:"cache_salt"`
}

func encode(k kv.ObjectKey) encodedKey {
	rank := int64(k.Rank)
	return encodedKey{
		Hash: hex.EncodeToString(k.Hash), Model: k.Model, Rank: &rank, Group: int64(k.Group), Salt: k.Salt,
	}
}

func (e encodedKey) key() (kv.ObjectKey, error) {
	hash, err := hex.DecodeString(e.Hash)
	if err != nil {
		return kv.ObjectKey{}, invalid("chunk_hash_hex: %v", err)
	}
	if e.Rank == nil || *e.Rank < 0 || *e.Rank > math.MaxUint32 || e.Group < 0 || e.Group > math.MaxUint32 {
		return kv.ObjectKey{}, invalid("kv_rank and object_group_id are numbers of 32 bits")
	}
	k := kv.ObjectKey{Hash: hash, Model: e.Model, Rank: kv.Rank(*e.Rank), Group: uint32(e.Group), Salt: e.Salt}
	if err := k.Validate(); err != nil {
		return k, invalid("%v", err)
	}
	return k, nil
}

// list is a list of objects. It takes no more room than a few times its text: 2 bytes of JSON would have 200 of a batch
// in a slice.
type list[T any] []T

// leastText is how many bytes of JSON an element of a list has at least, on average.
const leastText = 32

// UnmarshalJSON reads a list.
func (l *list[T]) UnmarshalJSON(b []byte) error {
	dec := json.NewDecoder(bytes.NewReader(b))
	begin, err := dec.Token()
	if err != nil || begin == nil { // null is as in the field of a slice
		return err
	}
	if begin != json.Delim('[') {
		return fmt.Errorf("%.40v is no list", begin)
	}
	var all []T
	for dec.More() {
		if len(all) >= 64+len(b)/leastText {
			return fmt.Errorf("a list of %d bytes with more than %d elements", len(b), len(all))
		}
		var x T
		if err := dec.Decode(&x); err != nil {
			return err
		}
		all = append(all, x)
	}
	*l = all
	return nil
}

type eventsRequest struct {
	Batches list[batch] `json:"batches"`
}

// batch is changes of one kind by one instance.
type batch struct {
	Instance    string      `json:"instance_id"`
	Incarnation *int64      `json:"incarnation"`
	Seq         int64       `json:"seq"`
	Type        string      `json:"event_type"`
	Tier        string      `json:"tier"`
	Backend     *string     `json:"backend"`
	Entries     list[entry] `json:"entries"`
	Shared      bool        `json:"shared"`
	Time        float64     `json:"ts"`
	Capacity    int64       `json:"capacity_bytes"`
	Revision    int64       `json:"capacity_revision"`
	Dropped     int64       `json:"dropped_events"`

	keys    []kv.ObjectKey // of the entries
	refused map[int]bool   // entries for which there is no room
}

type entry struct {
	Key    *encodedKey `json:"key"`
	Size   int64       `json:"size_bytes"`
	Tokens []int64     `json:"token_ids"`
	Offset *int64      `json:"token_offset"`
}

const unknownOffset = -1

// The kinds of changes.
const (
	store  = "store"
	remove = "delete"
	access = "access"
	config = "config"
)

func (b *batch) check() error {
	switch {
	case b.Instance == "" || len(b.Instance) > maxName:
		return invalid("instance_id is empty, or has more than %d bytes", maxName)
	case b.Instance == sharedHolder:
		return invalid("instance_id %s is taken", sharedHolder)
	case b.Incarnation == nil || *b.Incarnation < 0 || b.Seq < 1 || b.Time < 0 || b.Capacity < 0 ||
		b.Revision < 0 || b.Dropped < 0:
		return invalid("a batch of %.40q has no incarnation or seq, or a number below 0", b.Instance)
	case b.Type != store && b.Type != remove && b.Type != access && b.Type != config:
		return invalid("event_type is %.40q", b.Type)
	case b.Tier != "l1" && b.Tier != "l2":
		return invalid("tier is %.40q", b.Tier)
	case b.Backend == nil || *b.Backend == "" && b.Type != access || len(*b.Backend) > maxName:
		return invalid("backend of a %s batch is empty, or has more than %d bytes", b.Type, maxName)
	case b.Type == config && len(b.Entries) > 0:
		return invalid("a config batch has entries")
	}
	b.keys = make([]kv.ObjectKey, len(b.Entries))
	for i, e := range b.Entries {
		if e.Key == nil || e.Size < 0 || e.Offset != nil && *e.Offset < unknownOffset {
			return invalid("entry %d has no key, or a number below 0", i)
		}
		var err error
		if b.keys[i], err = e.Key.key(); err != nil {
			return err
		}
	}
	return nil
}

type eventsResponse struct {
	Applied    int `json:"applied"`
	Duplicates int `json:"duplicates"`
	Stale      int `json:"stale"`
}

type lookupRequest struct {
	Keys   list[encodedKey] `json:"keys"`
	Tokens []int64          `json:"token_ids"`
	Model  string           `json:"model_name"`
	World  *int             `json:"world_size"`
	Salt   string           `json:"cache_salt"`
}

type lookupResponse struct {
	Chunks  int         `json:"chunks"`
	Results []keyResult `json:"results"`
}

type keyResult struct {
	Key        encodedKey `json:"key"`
	Placements []place    `json:"placements"`
	Tokens     []int64    `json:"token_ids"`
	Accesses   int64      `json:"access_count"`
}

// place is where an object is.
type place struct {
	Instance    string `json:"instance_id"`
	Incarnation int64  `json:"incarnation"`
	Tier        string `json:"tier"`
	Backend     string `json:"backend"`
	Size        int64  `json:"size_bytes"`
	Shared      bool   `json:"shared"`
}

type listResponse struct {
	Total int       `json:"total"`
	Keys  []keyInfo `json:"keys"`
}

type keyInfo struct {
	Key        encodedKey `json:"key"`
	Placements []place    `json:"placements"`
	Tokens     int        `json:"num_tokens"`
	Accesses   int64      `json:"access_count"`
}

type statsResponse struct {
	Keys       int            `json:"num_keys"`
	Placements int            `json:"num_placements"`
	L1         map[string]int `json:"l1_keys_by_instance"`
	Blend      blendStats     `json:"blend"`
	L1Count    int            `json:"l1_count"`
	L1Bytes    int64          `json:"l1_size_bytes"`
	L2Count    int            `json:"l2_count"`
	L2Bytes    int64          `json:"l2_size_bytes"`
}

// blendStats are zeros: fragments are not indexed.
type blendStats struct {
	Contents   int `json:"num_contents"`
	Chunks     int `json:"num_chunks"`
	Claims     int `json:"num_claims"`
	Namespaces int `json:"num_namespaces"`
	Table      int `json:"table_size"`
}

type registerRequest struct {
	Instance  string            `json:"instance_id"`
	IP        string            `json:"ip"`
	Port      int               `json:"http_port"`
	Metadata  map[string]string `json:"metadata"`
	ChunkSize *int              `json:"chunk_size"`
	PeerURL   string            `json:"p2p_advertised_url"`
	QueuePort int               `json:"mq_port"`
}

type registerResponse struct {
	Instance string `json:"instance_id"`
	Again    bool   `json:"re_registered"`
}

type instanceInfo struct {
	Instance   string            `json:"instance_id"`
	IP         string            `json:"ip"`
	Port       int               `json:"http_port"`
	Registered float64           `json:"registration_time"`
	Metadata   map[string]string `json:"metadata"`
	PeerURL    string            `json:"p2p_advertised_url"`
	QueuePort  int               `json:"mq_port"`
}

// longestRequest is ours: who holds the longest prefix of tokens. LMCache's coordinator has no such question; its
// clients put the answers of /directory/lookup together.
type longestRequest struct {
	lookupRequest
	Most int `json:"most"`
}

type longestResponse struct {
	Chunks    int            `json:"chunks"`
	Instances []instanceHold `json:"instances"`
}

type instanceHold struct {
	Instance string         `json:"instance_id"`
	Tokens   int            `json:"tokens"`
	Chunks   int            `json:"chunks"`
	Places   map[string]int `json:"chunks_at"`
	Stale    bool           `json:"stale"`
}
