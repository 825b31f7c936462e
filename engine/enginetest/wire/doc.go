// Package wire is an engine's half of the messages of serde/enginecore: it decodes what
// a frontend sends, and encodes what EngineCore answers. It is for tests, for stand-ins
// such as enginetest.Engine, and for whoever compares with vLLM; a frontend needs none
// of it.
//
// Everything decoded is taken for hostile, as in package serde, and errors are of the
// same kinds.
package wire
