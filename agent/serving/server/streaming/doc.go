// Package streaming serves kubectl exec, attach, cp and port-forward: it asks the runtime for a
// stream and proxies it to clients that use SPDY or WebSocket. Runtimes speak SPDY and only older
// WebSocket protocols, so this package translates the newest ones.
package streaming
