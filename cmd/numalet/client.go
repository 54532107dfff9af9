package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"
)

// readOnlyPort is the kubelet's usual one.
const readOnlyPort = "10255"

// askTimeout is longer than an agent takes over any question.
const askTimeout = 40 * time.Second

// maxAnswer bounds what is read of an agent's answer.
const maxAnswer = 256 << 20

// agentAddress is a flag: the read-only port of an agent, as a URL. What a user may leave out is
// filled in: node1 is http://node1:10255.
type agentAddress struct{ url *url.URL }

func newAgentAddress(text string) agentAddress {
	var a agentAddress
	if err := a.Set(text); text != "" && err != nil {
		panic(err) // a default of ours
	}
	return a
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

// get asks the agent for what is below the path's elements.
func (a *agentAddress) get(ctx context.Context, answer any, path ...string) error {
	for i := range path {
		path[i] = url.PathEscape(path[i])
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url.JoinPath(path...).String(),
		nil)
	if err != nil {
		return err
	}
	return a.ask(req, answer)
}

// ask sends a request and decodes the answer.
func (a *agentAddress) ask(req *http.Request, answer any) error {
	ctx, cancel := context.WithTimeout(req.Context(), askTimeout)
	defer cancel()
	resp, err := http.DefaultClient.Do(req.WithContext(ctx))
	if errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("no agent answers at %s: set readOnlyPort (--read-only-port) of the "+
			"agent, which is off by default, or name its address with --server", a)
	}
	if err != nil {
		var failed *url.Error // names the whole request again
		if errors.As(err, &failed) {
			err = failed.Err
		}
		return fmt.Errorf("ask the agent at %s: %w; name its read-only port with --server", a, err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the agent's answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the agent at %s says: %s", a, strings.TrimSpace(string(raw)))
	}
	if err := json.Unmarshal(raw, answer); err != nil {
		return fmt.Errorf("read the agent's answer: %w", err)
	}
	return nil
}
