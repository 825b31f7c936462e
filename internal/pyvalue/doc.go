// Package pyvalue writes and reads Python values of any kind, and the arrays among
// them, in messages of EngineCore. Both halves of these messages use it:
// serde/enginecore, a frontend's, and engine/enginetest/wire, an engine's.
package pyvalue
