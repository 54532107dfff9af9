// Package kubeapi reaches the API server as this node: the kubeconfig, the client certificate from
// its first request on, and the connections. The packages below it use them. Without a kubeconfig
// there is no Client, and nothing else in the agent knows whether there is one.
//
// A Client has three connections, so that none waits for another: for lease and status, for events,
// and for everything else. Until the node has a certificate, requests wait for it.
package kubeapi
