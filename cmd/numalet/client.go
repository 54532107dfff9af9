package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/internal/oneline"
)

// readOnlyPort is the kubelet's usual read-only port.
const readOnlyPort = "10255"

// askTimeout is longer than an agent takes to answer any question.
const askTimeout = 40 * time.Second

// maxAnswer bounds how many bytes of an agent's answer are read.
const maxAnswer = 256 << 20

// agentAddress is a flag that holds the URL of an agent's read-only port. Parts that the user leaves out
// are filled in: node1 means http://node1:10255. If node has a name, the agent is reached through an
// API server instead.
type agentAddress struct {
	url    *url.URL
	socket string // if not empty, dialed instead of the URL's host
	node   nodeProxy
}

// add registers the flag and the flags of the way through an API server.
func (a *agentAddress) add(flags *pflag.FlagSet, usage string) {
	flags.Var(a, "server", usage)
	a.node.add(flags)
}

// named reports whether the user named an agent.
func (a *agentAddress) named() bool { return a.url != nil || a.node.name != "" }

// thisHost is the agent of this host.
func thisHost() agentAddress {
	return agentAddress{url: &url.URL{Scheme: "http", Host: "127.0.0.1:" + readOnlyPort}}
}

func (a *agentAddress) Type() string { return "address" }

func (a *agentAddress) String() string {
	if a.url == nil {
		return ""
	}
	return a.url.String()
}

// Set takes HOST, HOST:PORT or a URL.
func (a *agentAddress) Set(text string) error {
	whole := text
	if !strings.Contains(text, "://") {
		whole = "http://" + text
	}
	u, err := url.Parse(whole)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("not the address of an agent's read-only port: it looks like "+
			"127.0.0.1:%s or http://node1:%[1]s", readOnlyPort)
	}
	if whole != text && u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), readOnlyPort)
	}
	a.url = u
	return nil
}

// get asks the agent for the path and decodes the answer. It escapes the elements of path.
func (a *agentAddress) get(ctx context.Context, answer any, path ...string) error {
	for i := range path {
		path[i] = url.PathEscape(path[i])
	}
	return a.ask(ctx, question{path: path}, answer)
}

// question is a request to an agent: a GET if it has no body, else a POST.
type question struct {
	path  []string // escaped
	query url.Values
	body  []byte // YAML
}

// ask sends a question and decodes the answer.
func (a *agentAddress) ask(ctx context.Context, q question, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	base, client := a.url, http.DefaultClient
	if a.socket != "" {
		client = overSocket(a.socket)
	}
	if a.node.name != "" {
		var err error
		if base, client, err = a.node.connect(); err != nil {
			return err
		}
	}
	to := base.JoinPath(q.path...)
	to.RawQuery = q.query.Encode()
	method := http.MethodGet
	if q.body != nil {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, method, to.String(), bytes.NewReader(q.body))
	if err != nil {
		return err
	}
	if q.body != nil {
		req.Header.Set("Content-Type", "application/yaml")
	}
	resp, err := client.Do(req)
	if err != nil {
		return a.unreached(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the agent's answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s says: %s", a.who(), said(raw))
	}
	if raw, err = withoutControls(raw); err == nil {
		err = json.Unmarshal(raw, answer)
	}
	if err != nil {
		return fmt.Errorf("read the agent's answer: %w", err)
	}
	return nil
}

// said returns the text of an error answer; of an API server's Status, the message.
func said(raw []byte) string {
	var status metav1.Status
	if json.Unmarshal(raw, &status) == nil && status.Kind == "Status" && status.Message != "" {
		return oneline.Of(status.Message)
	}
	return oneline.Of(strings.TrimSpace(string(raw)))
}

// who returns a description of the agent that is asked.
func (a *agentAddress) who() string {
	if a.node.name != "" {
		return "node " + a.node.name
	}
	if a.socket != "" {
		return "the agent at " + a.socket
	}
	return "the agent at " + a.String()
}

// unreached returns an error that says what to do if no answer came.
func (a *agentAddress) unreached(err error) error {
	if a.socket != "" && errors.Is(err, fs.ErrPermission) {
		return mayNot(a.socket)
	}
	if a.socket != "" {
		return fmt.Errorf("ask the agent: %w; start it, name its root directory with --root-dir, or "+
			"its node with --node", cause(err))
	}
	if a.node.name == "" && errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("no agent answers at %s: set readOnlyPort (--read-only-port) of the "+
			"agent, which is off by default, or name its address with --server, or its node with "+
			"--node", a)
	}
	err = cause(err)
	if a.node.name != "" {
		return fmt.Errorf("ask the API server for node %s: %w; see --kubeconfig", a.node.name, err)
	}
	return fmt.Errorf("ask the agent at %s: %w; name its read-only port with --server", a, err)
}

// mayNot is the error of a user who may not open the agent's socket.
func mayNot(socket string) error {
	return fmt.Errorf("only root and the agent's own user may ask through %s: ask as root, or name the node with "+
		"--node, as a user of the cluster who may", socket)
}

// cause returns the error without its url.Error wrapper, which would name the request again.
func cause(err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return failed.Err
	}
	return err
}
