// Package provider asks credential provider plugins for registry logins (KEP-2133, KEP-4412). A
// plugin is a program that gets an image's name, and perhaps a token of the pod's service account,
// as JSON on standard input, and answers on standard output. Answers are cached for as long as they
// say. Each call has a deadline and a bound on its output; if a plugin hangs or fails, a pull lacks
// only that plugin's logins.
package provider
