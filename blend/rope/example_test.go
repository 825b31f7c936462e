package rope_test

import (
	"fmt"
	"log"
	"math"

	"github.com/ringcache/ringcache/blend/rope"
)

// A key that was computed at position 3 is moved by four: it equals the key of position 7.
func Example() {
	table, err := rope.New(rope.Config{HeadDim: 4})
	if err != nil {
		log.Fatal(err)
	}
	key := []float32{1, 2, 3, 4} // without a position
	at3, moved, at7 := make([]float32, 4), make([]float32, 4), make([]float32, 4)
	for _, err := range []error{
		table.At(3).Floats(at3, key),
		table.Shift(4).Floats(moved, at3),
		table.At(7).Floats(at7, key),
	} {
		if err != nil {
			log.Fatal(err)
		}
	}
	far := 0.0
	for i := range at7 {
		far = max(far, math.Abs(float64(moved[i]-at7[i])))
	}
	fmt.Println("equal but for rounding:", far < 1e-5)
	// Output: equal but for rounding: true
}
