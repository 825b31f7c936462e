package controller

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/go-zeromq/zmq4"
	"golang.org/x/sync/errgroup"

	"github.com/ringcache/ringcache/internal/zmtp"
	"github.com/ringcache/ringcache/kv/directory"
)

// Bounds of connections to workers: of one command, and of all.
const (
	atOnce    = 16 // workers
	maxAtOnce = 16 // commands; others wait
	inAll     = 4  // how many times Options.Timeout one may take, with as many workers as it has
)

// LMCache's numbers for a worker that does not say how it is.
const (
	errorOfWorker = -1001
	otherClass    = -1002
	// notReached is what LMCache has for an answer that it can't read. It waits for ever for one that does not come.
	notReached = -1003
)

// command gives a command of an orchestrator to all workers of an instance, and collects their answers.
func (s *Server) command(ctx context.Context, m *message) ([]byte, error) {
	if m.InstanceID == "" {
		return nil, invalid("%s without an instance", m.Type)
	}
	workers := s.o.Directory.Workers(m.InstanceID)
	if len(workers) == 0 {
		return nil, fmt.Errorf("%w: no workers of instance %.40q", directory.ErrUnknown, m.InstanceID)
	}
	ctx, cancel := context.WithTimeout(ctx, inAll*s.o.Timeout)
	defer cancel()
	select {
	case s.commands <- struct{}{}:
		defer func() { <-s.commands }()
	case <-ctx.Done():
		return nil, fmt.Errorf("controller: %d commands are under way: %w", maxAtOnce, ctx.Err())
	}
	answers := make([]*message, len(workers))
	errs := make([]error, len(workers))
	var work errgroup.Group
	work.SetLimit(atOnce)
	for i, w := range workers {
		work.Go(func() error {
			answers[i], errs[i] = s.ask(ctx, w, commandFor(m, w))
			return nil
		})
	}
	_ = work.Wait() // the errors are in errs
	if m.Type == "HealthMsg" {
		f := begin("HealthRetMsg", 2).text("event_id", m.EventID).dict("error_codes", len(workers))
		for i, w := range workers {
			f.b = appendInt(appendInt(f.b, w.ID.Worker), health(answers[i], errs[i]))
		}
		return f.b, nil
	}
	class := m.Type[:len(m.Type)-len("Msg")] // Clear or Pin
	for i, a := range answers {
		switch {
		case errs[i] != nil:
			return nil, errs[i]
		case a.Type == "ErrorMsg":
			return nil, fmt.Errorf("controller: worker %d: %.1000s", workers[i].ID.Worker, a.Error)
		case a.Type != class+"WorkerRetMsg":
			return nil, invalid("worker %d answers with %s", workers[i].ID.Worker, a.Type)
		case a.NumTokens != answers[0].NumTokens:
			return nil, fmt.Errorf("controller: the workers of %.40q do not agree: %d tokens and %d", m.InstanceID,
				answers[0].NumTokens, a.NumTokens)
		}
	}
	return begin(class+"RetMsg", 2).text("event_id", m.EventID).number("num_tokens", answers[0].NumTokens).b, nil
}

func health(answer *message, err error) int64 {
	switch {
	case err != nil:
		return notReached
	case answer.Type == "HealthWorkerRetMsg":
		return answer.ErrorCode
	case answer.Type == "ErrorMsg":
		return errorOfWorker
	}
	return otherClass
}

// commandFor is what one worker gets.
func commandFor(m *message, w directory.Worker) []byte {
	event := "Worker" + strconv.FormatInt(w.ID.Worker, 10) + m.EventID
	switch m.Type {
	case "ClearMsg":
		return begin("ClearWorkerMsg", 2).text("worker_event_id", event).text("location", m.Location).b
	case "PinMsg":
		return begin("PinWorkerMsg", 3).text("worker_event_id", event).text("location", m.Location).
			numbers("tokens", m.Tokens).b
	default:
		return begin("HealthWorkerMsg", 1).text("worker_event_id", "Health"+event).b
	}
}

// ask sends a message to a worker, at the address with which it has registered, and waits for the answer.
func (s *Server) ask(ctx context.Context, w directory.Worker, command []byte) (*message, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(w.IP, strconv.FormatInt(w.Port, 10)))
	if err != nil {
		return nil, err
	}
	defer func() { _ = raw.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	defer stop()
	c := zmtp.New(raw, zmtp.Options{MaxMessage: 64 << 10, MaxFrames: 2, Buffer: bufferSize, SendTimeout: s.o.Timeout})
	if _, err := c.Greet(zmq4.Req, min(handshake, s.o.Timeout)); err != nil {
		return nil, err
	}
	if err := c.Send([][]byte{{}, command}); err != nil {
		return nil, err
	}
	if err := raw.SetReadDeadline(time.Now().Add(s.o.Timeout)); err != nil {
		return nil, err
	}
	frames, err := c.Receive()
	if err != nil {
		return nil, err
	}
	return parse(frames[len(frames)-1])
}
