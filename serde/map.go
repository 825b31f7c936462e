package serde

// Map is a Python dict in messages of package enginecore that has keys other than
// strings, or an order: Keys[i] is the key of Values[i]. Keys are bool, int64,
// uint64, float64 or string.
type Map struct{ Keys, Values []any }
