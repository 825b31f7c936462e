package coordinator

import (
	"crypto/rand"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ringcache/ringcache/kv"
	"github.com/ringcache/ringcache/kv/directory"
)

var errInstances = fmt.Errorf("coordinator: %d instances are known, and no more can: %w", maxInstances,
	directory.ErrFull)

type instance struct {
	instanceInfo

	heartbeat time.Time
}

// Expire drops the instances whose heartbeat is too old: what they hold in memory is gone. Call it from time
// to time. It returns how many it dropped.
func (s *Server) Expire() (dropped int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, i := range s.instances {
		if s.o.Now().Sub(i.heartbeat) > s.o.Timeout {
			delete(s.instances, name)
			s.gate.drop(name)
			dropped++
		}
	}
	for name, stream := range s.gate.streams {
		if s.instances[name] == nil && s.o.Now().Sub(stream.last) > idle {
			s.gate.drop(name)
			delete(s.gate.departed, name) // it may be alive: its next batch comes after a gap
			dropped++
		}
	}
	return dropped
}

func (s *Server) register(_ *http.Request, body []byte) (int, any, error) {
	var q registerRequest
	if err := read(body, &q); err != nil {
		return 0, nil, err
	}
	q.Instance, q.IP, q.PeerURL = strings.TrimSpace(q.Instance), strings.TrimSpace(q.IP), strings.TrimSpace(q.PeerURL)
	size := len(q.PeerURL)
	for k, v := range q.Metadata {
		size += len(k) + len(v)
	}
	if q.IP == "" || q.Instance == sharedHolder || len(q.IP) > maxName || len(q.Instance) > maxName ||
		size > maxMetadata {
		return 0, nil, invalid("ip is empty, or a text is too long")
	}
	if q.Port < 1 || q.Port > 65535 || q.QueuePort < 0 || q.QueuePort > 65535 ||
		q.ChunkSize != nil && *q.ChunkSize < 1 {
		return 0, nil, invalid("http_port, mq_port or chunk_size is none")
	}
	if q.Instance == "" {
		q.Instance = "mp-" + strings.ToLower(rand.Text())
	}
	if q.Metadata == nil {
		q.Metadata = map[string]string{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.ChunkSize != nil {
		if err := s.bindTo(*q.ChunkSize); err != nil {
			return 0, nil, err
		}
	}
	_, again := s.instances[q.Instance]
	if !again && len(s.instances) >= maxInstances {
		return 0, nil, errInstances
	}
	now := s.o.Now()
	s.instances[q.Instance] = &instance{instanceInfo{
		Instance: q.Instance, IP: q.IP, Port: q.Port, Registered: float64(now.UnixMicro()) / 1e6,
		Metadata: q.Metadata, PeerURL: q.PeerURL, QueuePort: q.QueuePort,
	}, now}
	s.gate.back(q.Instance)
	return http.StatusOK, registerResponse{q.Instance, again}, nil
}

func (s *Server) all(*http.Request, []byte) (int, any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []instanceInfo{}
	for _, name := range slices.Sorted(maps.Keys(s.instances)) {
		list = append(list, s.instances[name].instanceInfo)
	}
	return http.StatusOK, map[string]any{"instances": list}, nil
}

func (s *Server) heartbeat(q *http.Request, _ []byte) (int, any, error) {
	id := q.PathValue("id")
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.instances[id]
	if i == nil {
		return http.StatusNotFound, map[string]string{"error": "unknown instance " + id + "; re-register"}, nil
	}
	i.heartbeat = s.o.Now()
	return http.StatusOK, map[string]string{"instance_id": id}, nil
}

func (s *Server) deregister(q *http.Request, _ []byte) (int, any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.instances, q.PathValue("id"))
	s.gate.drop(q.PathValue("id"))
	return http.StatusNoContent, nil, nil
}

func (s *Server) bind(_ *http.Request, body []byte) (int, any, error) {
	var q struct {
		ChunkSize int `json:"chunk_size"`
	}
	if err := read(body, &q); err != nil {
		return 0, nil, err
	}
	if q.ChunkSize < 1 {
		return 0, nil, invalid("chunk_size is %d", q.ChunkSize)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.bindTo(q.ChunkSize); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, q, nil
}

// bindTo makes a size of chunks the final one. The caller has the lock.
func (s *Server) bindTo(size int) error {
	conflict := func(format string, args ...any) error {
		return statusError{http.StatusConflict, fmt.Errorf(format, args...)}
	}
	switch {
	case s.bound && size == s.chunk:
		return nil
	case s.bound:
		return conflict("Coordinator is already bound to chunk size %d; "+
			"use a separate coordinator for a fleet requiring chunk size %d", s.chunk, size)
	case size < s.o.ChunkTokens:
		return conflict("Chunk size %d is smaller than the coordinator's configured minimum %d", size, s.o.ChunkTokens)
	}
	h, err := kv.NewHasher(kv.Scheme{ChunkTokens: size})
	if err != nil {
		return conflict("%v", err)
	}
	s.hasher, s.chunk, s.bound = h, size, true
	return nil
}
