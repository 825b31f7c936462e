// Package door contains the key to the steps of a store below its requests, which only
// packages of objstore can make.
package door

// Key opens Store.Steps.
type Key struct{ _ struct{} }
