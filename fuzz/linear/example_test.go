package linear_test

import (
	"fmt"

	"github.com/ringcache/ringcache/fuzz/linear"
)

// A history of two clients, which an order of the calls explains.
func Example() {
	store := map[string]uint64{}
	rec := linear.NewRecorder()
	writer, reader := rec.Client(), rec.Client() // of a goroutine each
	err := writer.Do(linear.StoreCall{Op: linear.Put, Key: "a", Value: 7}, func() (any, error) {
		store["a"] = 7
		return linear.StoreResult{Done: true}, nil
	})
	if err != nil {
		fmt.Println(err)
	}
	err = reader.Do(linear.StoreCall{Op: linear.Get, Key: "a"}, func() (any, error) {
		return linear.StoreResult{Value: store["a"]}, nil
	})
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println(linear.Check(linear.Store(linear.StoreOptions{}), rec.History(), linear.Options{}))
	// Output: <nil>
}
