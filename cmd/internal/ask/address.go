package ask

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
)

// readOnlyPort is the kubelet's usual read-only port.
const readOnlyPort = "10255"

// address is a flag: the URL of an agent's port, or the path of its socket. Parts of a URL that the user leaves out
// are filled in: node1 means http://node1:10255.
type address struct {
	base   *url.URL
	socket string // if not empty, there is no base
}

func (d address) known() bool { return d.base != nil || d.socket != "" }

// Type is the word that the help has for the value.
func (d *address) Type() string { return "address" }

func (d *address) String() string {
	switch {
	case d.socket != "":
		return d.socket
	case d.base != nil:
		return d.base.String()
	}
	return ""
}

// Set takes HOST, HOST:PORT, a URL, or the path of a socket, with or without unix: before it.
func (d *address) Set(text string) error {
	path, unix := strings.CutPrefix(text, "unix:")
	if unix || strings.HasPrefix(text, "/") || strings.HasPrefix(text, ".") {
		path, err := filepath.Abs(strings.TrimPrefix(path, "//"))
		*d = address{socket: path}
		return err
	}
	whole := text
	if !strings.Contains(text, "://") {
		whole = "http://" + text
	}
	u, err := url.Parse(whole)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("not the address of an agent: it looks like 127.0.0.1:%s or http://node1:%[1]s, a port "+
			"that is read-only, or like %s, its socket", readOnlyPort, filepath.Join(usualRoot, "numalet.sock"))
	}
	if whole != text && u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), readOnlyPort)
	}
	*d = address{base: u}
	return nil
}

// target returns the target of questions to that address.
func (d address) target() target {
	if d.socket == "" {
		return target{address: d, client: http.DefaultClient}
	}
	return target{address: d, client: overSocket(d.socket)}
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
