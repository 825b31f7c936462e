// Package e2e runs whole vLLM engines, with tiny models on the CPU, behind
// package engine, and compares every token with those of vLLM's own frontend.
//
//	make e2e
//
// The tests have the build tag e2e. README.md describes what else is here.
package e2e
