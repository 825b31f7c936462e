// Package config reads the configuration of LMCache (0.5.6 and 0.5.7) as LMCache does, and says what it means
// for ringcache serve. `ringcache lmcache-config` prints that.
//
// # Reading
//
// An engine with LMCache inside has a YAML file, variables LMCACHE_NAME that win over the file, and keys
// lmcache.NAME of vLLM's connector that win over both: [Sources.Load]. lmcache server has a command line and
// some variables: [LoadServer]. Both give a [Config], of which [Config.Settings] and [Config.Get] have all
// options with their values. [Options] are the options themselves, with types and defaults.
//
// Values are what LMCache makes of the same texts: YAML 1.1 as PyYAML reads it, Python's int and float,
// LMCache's own booleans and lists, flags that are shortened. What LMCache refuses is an error. What it
// passes over, such as a name that is no option, is a [Problem] of the configuration, since it is hardly what
// somebody meant. A few things that LMCache takes are refused here, because they can't be meant: a list for a
// text, of which LMCache makes Python's form of the list, and numbers beyond 64 bits. Tags of YAML, times of
// day, NaN in JSON and \N in variables are refused, too.
//
// # Meaning
//
// [Config.Translate] makes settings of ringcache serve, and a line for each option: the setting that it
// became, or why it has no meaning. Its warnings are about what is not there, and about what costs hits and
// is not seen: engines without one PYTHONHASHSEED, chunks that are no multiple of blocks, a disk without a
// size. [Engine] is what LMCache does not know. [Translation.YAML] is a file for ringcache serve --config,
// with all of that in comments. Passwords are left out.
//
// # Errors and concurrency
//
// Errors of Load and LoadServer wrap fs.ErrInvalid, and name the place. Nothing is opened: callers hand in
// what files and environments contain. A file has at most 1 MiB, and 16384 values. Everything is a value
// without a goroutine; a Config that nobody writes to may be read by any number of goroutines.
package config
