package server

import (
	"errors"
	"net"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/deviceplugin/socket"
	"github.com/numalet/numalet/internal/files"
)

// endingWait bounds the wait for an address in use: a kubelet that was told to stop holds the
// agent's ports until it has ended.
const endingWait = 5 * time.Second

// listen listens on host:port, or on a unix socket if address is a path.
func listen(address string) (net.Listener, error) {
	if !filepath.IsAbs(address) {
		return listenTCP(address)
	}
	if err := files.Remove(address); err != nil {
		return nil, err
	}
	l, err := socket.ListenAs(address, 0o600)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// listenTCP waits while the address is in use.
func listenTCP(address string) (net.Listener, error) {
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
