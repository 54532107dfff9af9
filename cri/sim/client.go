package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

// Client controls a simulated runtime in another process. Its methods are those of Server.
type Client struct {
	path string
	http *http.Client
}

// NewClient is a client of the control socket at path. It connects on each call.
func NewClient(path string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}
	return &Client{path: path, http: &http.Client{
		Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true},
	}}
}

// State is Server.State.
func (c *Client) State(ctx context.Context) (State, error) {
	var out State
	err := c.do(ctx, http.MethodGet, "/state", nil, &out)
	return out, err
}

// Journal is Server.Journal.
func (c *Client) Journal(ctx context.Context, since uint64) ([]Call, error) {
	var out []Call
	err := c.do(ctx, http.MethodGet, fmt.Sprintf("/journal?since=%d", since), nil, &out)
	return out, err
}

// SetFault is Server.SetFault.
func (c *Client) SetFault(ctx context.Context, f Fault) error {
	return c.do(ctx, http.MethodPost, "/faults", f, nil)
}

// ClearFaults is Server.ClearFaults.
func (c *Client) ClearFaults(ctx context.Context) error {
	return c.do(ctx, http.MethodDelete, "/faults", nil, nil)
}

// Exit is Server.Exit.
func (c *Client) Exit(ctx context.Context, container string, how Exit) error {
	return c.do(ctx, http.MethodPost, "/exit", exitRequest{Container: container, Exit: how}, nil)
}

// KillSandbox is Server.KillSandbox.
func (c *Client) KillSandbox(ctx context.Context, sandbox string) error {
	return c.do(ctx, http.MethodPost, "/kill-sandbox", sandboxRequest{Sandbox: sandbox}, nil)
}

// SetEvents is Server.SetEvents.
func (c *Client) SetEvents(ctx context.Context, mode EventMode) error {
	return c.do(ctx, http.MethodPost, "/events", eventsRequest{Mode: mode}, nil)
}

// DropEvents is Server.DropEvents.
func (c *Client) DropEvents(ctx context.Context) error {
	return c.do(ctx, http.MethodDelete, "/events", nil, nil)
}

// SetReady is Server.SetReady.
func (c *Client) SetReady(ctx context.Context, r Ready) error {
	return c.do(ctx, http.MethodPost, "/ready", r, nil)
}

// SetMissing is Server.SetMissing.
func (c *Client) SetMissing(ctx context.Context, patterns []string) error {
	return c.do(ctx, http.MethodPost, "/missing", missingRequest{Images: patterns}, nil)
}

func (c *Client) do(ctx context.Context, method, route string, in, out any) (err error) {
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			return fmt.Errorf("simulated runtime %s: encode: %w", c.path, err)
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://sim"+route, &body)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("simulated runtime %s: %w", c.path, err)
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		return fmt.Errorf("simulated runtime %s: %s: %s",
			c.path, resp.Status, strings.TrimSpace(string(text)))
	}
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fmt.Errorf("simulated runtime %s: decode %s: %w", c.path, route, err)
	}
	return nil
}
