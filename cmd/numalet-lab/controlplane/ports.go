package controlplane

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// ports are sockets bound to ports, so that no other program takes these while their server is down.
type ports []int

// hold reserves a free port on loopback that only our servers can share.
func (p *ports) hold() (port int, err error) {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("hold a port: %w", err)
	}
	*p = append(*p, socket)
	err = unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	if err == nil {
		err = unix.Bind(socket, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	var bound unix.Sockaddr
	if err == nil {
		bound, err = unix.Getsockname(socket)
	}
	if err != nil {
		return 0, fmt.Errorf("hold a port: %w", err)
	}
	return bound.(*unix.SockaddrInet4).Port, nil
}

func (p *ports) release() {
	for _, socket := range *p {
		unix.Close(socket)
	}
	*p = nil
}
