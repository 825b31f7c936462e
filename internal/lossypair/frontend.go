package lossypair

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/ringcache/ringcache/lrusync"
)

// Frontend completes requests over a link, and counts what happens to them. Its methods may be
// called by any number of goroutines.
type Frontend struct {
	Sender *lrusync.Sender
	// Link returns the link to use, also for an attempt that follows an ErrDown. Its error is
	// that of Do.
	Link func() (*Link, error)
	// Payload returns the bytes of an item.
	Payload func(key string, size int64) []byte

	Drifts, Repairs, Resent, Omitted, Bytes atomic.Int64
}

// Do completes one request, however often it has to be sent.
func (f *Frontend) Do(ctx context.Context, items []lrusync.Item) error {
	for range 100 {
		done, err := f.attempt(ctx, items)
		if done || err != nil {
			return err
		}
	}
	return errors.New("sent 100 times and still not served")
}

func (f *Frontend) attempt(ctx context.Context, items []lrusync.Item) (done bool, err error) {
	l, err := f.Link()
	if err != nil {
		return false, err
	}
	var answer <-chan reply
	tk, err := f.Sender.Send(ctx, items, func(tk lrusync.Ticket) (err error) {
		answer, err = l.send(f.request(tk, items))
		return err
	})
	var need *lrusync.NeedDataError
	switch {
	case errors.As(err, &need):
		for i := range items {
			items[i].HasData = items[i].HasData || slices.Contains(need.Keys, items[i].Key)
		}
		return false, nil
	case errors.Is(err, ErrDown):
		<-l.Done // else Link could return it again and again
		return false, nil
	case err != nil:
		return false, err
	}
	a, ok := <-answer
	switch {
	case !ok: // lost
		f.Resent.Add(1)
		return false, nil
	case a.Error != "":
		return false, errors.New(a.Error)
	case a.Result.Drift != nil:
		f.Drifts.Add(1)
		if f.Sender.Repair(*a.Result.Drift) {
			f.Repairs.Add(1)
		}
	}
	if a.Result.Missing != nil {
		f.Sender.Missed(tk.Envelope, a.Result.Missing)
		f.Resent.Add(1)
		return false, nil
	}
	for i, it := range items {
		if !bytes.Equal(a.Result.Values[i], f.Payload(it.Key, it.Size)) {
			return false, fmt.Errorf("%s arrived with other bytes (%d of them)", it.Key, len(a.Result.Values[i]))
		}
		f.Bytes.Add(it.Size)
		if tk.Omit[i] {
			f.Omitted.Add(1)
		}
	}
	return true, nil
}

func (f *Frontend) request(tk lrusync.Ticket, items []lrusync.Item) request {
	q := request{Envelope: tk.Envelope, Features: make([]lrusync.Feature[[]byte], len(items))}
	for i, it := range items {
		q.Features[i].Key = it.Key
		if !tk.Omit[i] {
			q.Features[i] = lrusync.Feature[[]byte]{
				Key: it.Key, HasData: true, Value: f.Payload(it.Key, it.Size), Size: it.Size,
			}
		}
	}
	return q
}

// Clear empties both ends. That can be lost, too, which the next request shows then.
func (f *Frontend) Clear(ctx context.Context) error {
	l, err := f.Link()
	if err != nil {
		return err
	}
	err = f.Sender.Clear(ctx, func(e lrusync.Envelope) error {
		_, err := l.send(request{Envelope: e, Clear: true})
		return err
	})
	if errors.Is(err, ErrDown) {
		return nil // nothing has happened
	}
	return err
}

// Compare compares what both ends list. Nothing may be under way, and nothing have been lost
// since a request was answered. It fails with ErrDown if the other end goes.
func (f *Frontend) Compare() error {
	l, err := f.Link()
	if err != nil {
		return err
	}
	answer, err := l.send(request{List: true})
	if err != nil {
		return err
	}
	there, ok := <-answer
	if !ok {
		return ErrDown
	}
	here, _ := f.Sender.Contents()
	if !slices.Equal(here, there.Contents) {
		return fmt.Errorf("the sender lists %v, the receiver has %v", here, there.Contents)
	}
	return f.Sender.CheckStructure()
}
