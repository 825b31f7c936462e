package tiertest_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/ringcache/ringcache/fuzz/tiertest"
	"github.com/ringcache/ringcache/tier"
)

// A level that is away for some keys, in a test of what stands on levels.
func ExampleFault() {
	l := tiertest.NewFault(tiertest.NewMap(tiertest.MapOptions{Capacity: 1 << 20}))
	defer l.Close()
	key := func(name string) tier.Key { return tier.Key{Space: "model", Name: name} }
	puts := []tier.Put{
		{Object: tier.Object{Key: key("a"), Size: 5}, Bytes: []byte("first")},
		{Object: tier.Object{Key: key("b"), Size: 6, Parent: "a"}, Bytes: []byte("second")},
	}
	l.Put(context.Background(), puts)

	l.Do(func(c tiertest.Call) tiertest.Answer {
		if c.Key.Name == "b" {
			return tiertest.Answer{Err: tier.ErrUnavailable}
		}
		return tiertest.Answer{}
	})
	gets := []tier.Get{{Key: key("a")}, {Key: key("b")}}
	l.Get(context.Background(), gets)
	fmt.Printf("%s, %v\n", gets[0].Bytes, gets[0].Err)
	fmt.Println(errors.Is(gets[1].Err, tier.ErrUnavailable))
	fmt.Println(l.Calls("Get"), "call,", l.Elements("Get"), "elements")
	// Output:
	// first, <nil>
	// true
	// 1 call, 2 elements
}
