// Package containerd runs a containerd of our own beside whatever the machine has. Its root, state,
// sockets, configuration and network lie in one directory, and nothing of it is left once it has
// stopped. The playground and the tests that need a real runtime use it; an agent in production
// uses the machine's runtime.
//
// Images are built from an executable of this machine, with the libraries it needs if it is not
// static. Neither a registry nor a compiler is needed.
package containerd
