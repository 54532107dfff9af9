package server

import (
	"errors"
	"net"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// endingWait is how long whoever has an address is waited for: a kubelet that was told to stop may
// have the ports of the agent until it has ended.
const endingWait = 5 * time.Second

// listen waits for an address that is in use.
func listen(address string) (net.Listener, error) {
	deadline := time.Now().Add(endingWait)
	l, err := net.Listen("tcp", address)
	if errors.Is(err, unix.EADDRINUSE) {
		klog.Background().Info("Another process has the address, waiting for its end",
			"address", address, "limit", endingWait)
	}
	for errors.Is(err, unix.EADDRINUSE) && time.Now().Before(deadline) {
		time.Sleep(50 * time.Millisecond)
		l, err = net.Listen("tcp", address)
	}
	return l, err
}
