// Package door gives package upstream the steps of a store below its requests, which no other package
// needs. They have a type of package objstore that is not exported, so objstore sets the function when
// the program starts.
package door

import "time"

// Steps returns the steps of a store: store is an objstore.Store, lock an objstore.Locker or nil, and the
// result has the methods of upstream.Steps.
var Steps func(store, lock any, lockTimeout time.Duration) any
