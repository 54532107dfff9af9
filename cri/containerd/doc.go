// Package containerd runs a containerd of our own beside whatever the machine has: its root, state,
// sockets, configuration and network lie in one folder, and nothing is left of it when it has
// stopped. The playground and the tests that need a real runtime use it; an agent in
// production finds its runtime running.
//
// Images come from an executable that is here already, with the libraries it needs if it is not
// static, so that neither a registry nor a compiler is needed.
package containerd
