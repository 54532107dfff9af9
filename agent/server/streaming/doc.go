// Package streaming answers what kubectl exec, attach, cp and port-forward ask: it has the container
// runtime open a stream and is the proxy before it, for clients that speak SPDY and for those that
// speak WebSocket. A runtime speaks SPDY; of a WebSocket it knows only older protocols, so that the
// newest is translated here.
package streaming
