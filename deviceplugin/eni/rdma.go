package eni

import (
	"fmt"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Constants of the kernel's protocol for RDMA devices that netlink's library lacks
// (include/uapi/rdma/rdma_netlink.h).
const (
	rdmaPorts     = 5  // RDMA_NLDEV_CMD_PORT_GET
	rdmaInterface = 50 // RDMA_NLDEV_ATTR_NDEV_INDEX
)

// RDMA implements Kernel. It returns indexes, since sysfs has the interface names of all
// namespaces.
func (k *kernel) RDMA() (map[int][]string, error) {
	socket, err := nl.GetNetlinkSocketAt(k.home, netns.None(), unix.NETLINK_RDMA)
	if err != nil {
		return nil, fmt.Errorf("talk to netlink about RDMA devices: %w", err)
	}
	defer socket.Close()
	if err := socket.SetReceiveTimeout(&nl.SocketTimeoutTv); err != nil {
		return nil, fmt.Errorf("talk to netlink about RDMA devices: %w", err)
	}
	ask := rdmaQuestions{unix.NETLINK_RDMA: {Socket: socket}}
	devices, err := ask.list(nl.RDMA_NLDEV_CMD_GET)
	if err != nil {
		return nil, fmt.Errorf("list RDMA devices: %w", err)
	}
	out := map[int][]string{}
	for _, d := range devices {
		name := strings.TrimRight(string(d[nl.RDMA_NLDEV_ATTR_DEV_NAME]), "\x00")
		ports, err := ask.list(rdmaPorts, nl.NewRtAttr(nl.RDMA_NLDEV_ATTR_DEV_INDEX,
			d[nl.RDMA_NLDEV_ATTR_DEV_INDEX]))
		if err = unless(unix.EINVAL, err); err != nil { // EINVAL: it has just been removed
			return nil, fmt.Errorf("list ports of RDMA device %s: %w", name, err)
		}
		for _, p := range ports {
			if index := p[rdmaInterface]; len(index) == 4 { // absent if it is in another namespace
				at := int(nl.NativeEndian().Uint32(index))
				out[at] = append(out[at], name)
			}
		}
	}
	return out, nil
}

// rdmaQuestions is a socket for requests.
type rdmaQuestions map[int]*nl.SocketHandle

// list sends a dump command and returns the attributes of each item.
func (q rdmaQuestions) list(command int, about ...nl.NetlinkRequestData) (
	all []map[uint16][]byte, err error) {
	messages, err := again(func() ([][]byte, error) {
		req := nl.NewNetlinkRequest(nl.RDMA_NL_NLDEV<<nl.RDMA_NL_GET_CLIENT_SHIFT|command,
			unix.NLM_F_DUMP)
		req.Sockets = q
		for _, attribute := range about {
			req.AddData(attribute)
		}
		return req.Execute(unix.NETLINK_RDMA, 0)
	})
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		attributes, err := nl.ParseRouteAttr(m)
		if err != nil {
			return nil, err
		}
		one := map[uint16][]byte{}
		for _, a := range attributes {
			one[a.Attr.Type&^syscall.NLA_F_NESTED] = a.Value
		}
		all = append(all, one)
	}
	return all, nil
}
