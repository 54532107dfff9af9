package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/numalet/numalet/agent/placement/devices"
)

// agentSocket reaches what an agent answers only to an administrator: through the socket below the
// agent's root directory, or through the API server of its cluster.
type agentSocket struct {
	root   string
	node   nodeProxy
	server agentAddress // named: asked instead, for what its read-only port answers too
}

func (a *agentSocket) add(flags *pflag.FlagSet) {
	flags.StringVar(&a.root, "root-dir", "/var/lib/kubelet",
		"the agent's root directory, on this machine; its user's rights are needed there")
	a.node.add(flags)
}

// address returns the agent to ask.
func (a *agentSocket) address() (*agentAddress, error) {
	switch {
	case a.server.named():
		return &a.server, nil
	case a.node.name != "":
		return &agentAddress{node: a.node}, nil
	}
	path, err := filepath.Abs(filepath.Join(a.root, devices.Socket))
	if err != nil {
		return nil, err
	}
	return &agentAddress{url: &url.URL{Scheme: "http", Host: "localhost"}, socket: path}, nil
}

// ask asks the agent for a path, a GET without a body, and decodes the answer.
func (a *agentSocket) ask(ctx context.Context, body, answer any, path ...string) error {
	q := question{path: path}
	if body != nil {
		var err error
		if q.body, err = json.Marshal(body); err != nil {
			return fmt.Errorf("encode the question: %w", err)
		}
	}
	address, err := a.address()
	if err != nil {
		return err
	}
	return address.ask(ctx, q, answer)
}

// overSocket returns a client that sends all requests to a unix socket, whatever their host.
func overSocket(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		},
	}}
}
