package lrusync_test

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ringcache/ringcache/lrusync"
	"github.com/ringcache/ringcache/serde"
)

// A request is lost on its way. The next one shows it; the sender repairs its
// view of the peer, and sends again what is missing.
func ExampleSender_Send() {
	options := lrusync.Options{Capacity: 1 << 20}
	sender, _ := lrusync.NewSender(options)
	receiver, _ := lrusync.NewReceiver[string](options)
	photos := map[string]string{"cat": "pixels of a cat", "dog": "pixels of a dog"}

	// request sends photos by their keys, until the receiver has what it needs.
	request := func(lose bool, keys ...string) {
		items := make([]lrusync.Item, len(keys))
		for i, k := range keys {
			items[i] = lrusync.Item{Key: k, HasData: true, Size: int64(len(photos[k]))}
		}
		for {
			var onTheWay []lrusync.Feature[string]
			ticket, err := sender.Send(context.Background(), items, func(t lrusync.Ticket) error {
				for i, k := range keys {
					f := lrusync.Feature[string]{Key: k}
					if !t.Omit[i] {
						f.HasData, f.Value, f.Size = true, photos[k], items[i].Size
					}
					onTheWay = append(onTheWay, f)
				}
				return nil // here a real frontend writes to its socket
			})
			if err != nil {
				fmt.Println(err)
				return
			}
			fmt.Println("sent", keys, "omitted", ticket.Omit)
			if lose {
				fmt.Println("lost")
				return
			}
			result, err := receiver.Receive(ticket.Envelope, onTheWay)
			if err != nil {
				fmt.Println(err)
				return
			}
			if result.Drift != nil {
				fmt.Println("drift, repaired:", sender.Repair(*result.Drift))
			}
			if result.Missing == nil {
				fmt.Println("arrived:", result.Values)
				return
			}
			fmt.Println("missing", result.Missing)
			sender.Missed(ticket.Envelope, result.Missing)
		}
	}
	request(false, "cat")
	request(true, "dog")
	request(false, "cat", "dog")
	request(false, "cat", "dog")

	a, _ := sender.Contents()
	b, _ := receiver.Contents()
	fmt.Println("equal:", slices.Equal(a, b))
	// Output:
	// sent [cat] omitted [false]
	// arrived: [pixels of a cat]
	// sent [dog] omitted [false]
	// lost
	// sent [cat dog] omitted [true true]
	// drift, repaired: true
	// missing [dog]
	// sent [cat dog] omitted [true false]
	// arrived: [pixels of a cat pixels of a dog]
	// sent [cat dog] omitted [true true]
	// arrived: [pixels of a cat pixels of a dog]
	// equal: true
}

// Data that can be had again need not be kept: ask first, and produce what is
// needed.
func ExampleNeedDataError() {
	sender, _ := lrusync.NewSender(lrusync.Options{Capacity: 100})
	items := []lrusync.Item{{Key: "photo"}}
	send := func(t lrusync.Ticket) error { fmt.Println("omitted", t.Omit); return nil }
	_, err := sender.Send(context.Background(), items, send)
	if need := (*lrusync.NeedDataError)(nil); errors.As(err, &need) {
		fmt.Println("decode", need.Keys)
		items[0].HasData, items[0].Size = true, 60
	}
	_, err = sender.Send(context.Background(), items, send)
	fmt.Println(err)
	// Output:
	// decode [photo]
	// omitted [false]
	// <nil>
}

func ExampleItemSize() {
	image := &serde.Item{Elems: []serde.Elem{
		{Key: "pixel_values", Data: &serde.Tensor{DType: "bfloat16", Shape: []int{3, 224, 224}}},
		{Key: "num_tokens", Data: int64(256)},
	}}
	python, _ := lrusync.ParsePython("3.12")
	fmt.Println(lrusync.ItemSize(image, python))
	_, err := lrusync.ItemSize(&serde.Item{}, python)
	fmt.Println(err)
	// Output:
	// 301084 <nil>
	// lrusync: an item or list without any value has no size, so vLLM's caches refuse it: leave the empty elem out
}
