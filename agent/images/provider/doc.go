// Package provider asks credential provider plugins for logins to registries (KEP-2133, KEP-4412):
// programs that get an image's name, and maybe a token of the pod's service account, as JSON on their
// standard input, and answer on their standard output. Answers are kept as long as they say. Each
// program has a deadline, and what it writes a bound; one that hangs or fails takes only its own
// logins from a pull.
package provider
