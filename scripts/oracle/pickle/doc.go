// Package pickle compares the metadata pickle of package serde with og-rek, a
// general decoder of pickles. It contains only tests.
package pickle
