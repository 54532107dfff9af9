package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

// Client gives orders to a plugin over its control socket.
type Client struct {
	path string
	http *http.Client
}

// NewClient returns a client of the control socket at path.
func NewClient(path string) *Client {
	return &Client{path: path, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		},
		DisableKeepAlives: true,
	}}}
}

// State asks what the plugin has and has been called for.
func (c *Client) State(ctx context.Context) (State, error) {
	var state State
	err := c.do(ctx, http.MethodGet, "/state", nil, &state)
	return state, err
}

// SetHealth sets the health of devices.
func (c *Client) SetHealth(ctx context.Context, healthy bool, ids ...string) error {
	return c.do(ctx, http.MethodPost, "/health", Health{IDs: ids, Healthy: healthy}, nil)
}

// Add adds devices.
func (c *Client) Add(ctx context.Context, devices ...Device) error {
	return c.do(ctx, http.MethodPost, "/devices", Devices{Add: devices}, nil)
}

// Remove removes devices.
func (c *Client) Remove(ctx context.Context, ids ...string) error {
	return c.do(ctx, http.MethodPost, "/devices", Devices{Remove: ids}, nil)
}

// Fault makes a call misbehave from now on.
func (c *Client) Fault(ctx context.Context, f Fault) error {
	return c.do(ctx, http.MethodPost, "/fault", f, nil)
}

// ClearFaults ends all misbehaviour; calls that hang go on.
func (c *Client) ClearFaults(ctx context.Context) error {
	return c.do(ctx, http.MethodDelete, "/faults", nil, nil)
}

// Restart makes the plugin close its socket, serve anew and register again.
func (c *Client) Restart(ctx context.Context) error {
	return c.do(ctx, http.MethodPost, "/restart", nil, nil)
}

// Crash ends the plugin at once, with its sockets left behind.
func (c *Client) Crash(ctx context.Context) error {
	return c.do(ctx, http.MethodPost, "/crash", nil, nil)
}

func (c *Client) do(ctx context.Context, method, path string, body, answer any) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s %s on %s: %w", method, path, c.path, err)
		}
	}()
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://plugin"+path, bytes.NewReader(data))
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("%s", strings.TrimSpace(string(got)))
	case answer == nil:
		return nil
	}
	return json.Unmarshal(got, answer)
}
