// Package eni is a device plugin that offers network interfaces as devices, which the plugins of
// clouds only count.
//
// Netlink and sysfs give one value for each interface, an [Interface]. [Choose] decides which
// interfaces are offered under which resource, and why others are not. [Records] has one entry for
// each offered interface, on disk, because the host cannot see an interface that is in a container:
//
//	        Allocate              its container is gone
//	free ------------> handed ---------------------------> returning --.
//	  ^                   ^                                            |
//	  |                   `--- Allocate: brought back first            |
//	  `---------- brought back, and as it was before <-----------------'
//
// A returning interface is unhealthy, so that no pod gets it as the last container left it. Its
// state is compared with that of its last handing out; steps is pure and returns the changes that
// restore it.
//
// Addresses and trunk members are alike: the plugin offers their number, a [Count].
package eni
