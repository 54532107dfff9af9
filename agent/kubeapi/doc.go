// Package kubeapi reaches the API server as this node: the kubeconfig, the client certificate from
// its first request on, and the connections. What is told there and taken from there are the
// packages below it. Without a kubeconfig there is no Client, and nothing else of the agent knows
// whether there is one.
//
// A Client has three connections, so that none of them waits for another: everything, what says
// that the node lives, and events. While the node has no certificate yet, requests wait for it: the
// API server sees none without.
package kubeapi
