// Package eni is a device plugin that offers network interfaces as devices, where the plugins of
// clouds only count them.
//
// What the kernel says of interfaces (netlink) and of their hardware (sysfs) becomes one value for
// each, an [Interface]. [Choose] decides which of them are offered under which resource, and why
// others are not. A book keeps one record for each interface that is offered, on disk, because an
// interface that is in a container cannot be seen from the host:
//
//	        Allocate              its container is gone
//	free ------------> handed ---------------------------> returning --.
//	  ^                   ^                                            |
//	  |                   `--- Allocate: brought back first            |
//	  `---------- brought back, and as it was before <-----------------'
//
// An interface that is returning is unhealthy, so that nobody gets it as the last container left
// it. What was changed on it is compared with what it was when it was handed out last: steps is
// pure, and says what to do about it.
//
// Addresses and trunk members, of which a node has so many, are counts.
package eni
