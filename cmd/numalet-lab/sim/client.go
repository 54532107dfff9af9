package sim

import (
	"context"

	"github.com/numalet/numalet/cmd/numalet-lab/control"
)

// Client gives orders to a plugin over its control socket.
type Client struct{ to *control.Client }

// NewClient returns a client of the control socket at path.
func NewClient(path string) *Client { return &Client{to: control.NewClient(path)} }

// State asks for the plugin's devices, faults and counts of calls.
func (c *Client) State(ctx context.Context) (State, error) {
	var state State
	err := c.to.Get(ctx, "/state", &state)
	return state, err
}

// SetHealth sets the health of devices.
func (c *Client) SetHealth(ctx context.Context, healthy bool, ids ...string) error {
	return c.to.Post(ctx, "/health", Health{IDs: ids, Healthy: healthy})
}

// Sicken makes devices unhealthy for a reason.
func (c *Client) Sicken(ctx context.Context, reason string, ids ...string) error {
	return c.to.Post(ctx, "/health", Health{IDs: ids, Reason: reason})
}

// Add adds devices.
func (c *Client) Add(ctx context.Context, devices ...Device) error {
	return c.to.Post(ctx, "/devices", Devices{Add: devices})
}

// Remove removes devices.
func (c *Client) Remove(ctx context.Context, ids ...string) error {
	return c.to.Post(ctx, "/devices", Devices{Remove: ids})
}

// Fault makes a call misbehave from now on.
func (c *Client) Fault(ctx context.Context, f Fault) error {
	return c.to.Post(ctx, "/fault", f)
}

// ClearFaults ends all misbehaviour; hanging calls continue.
func (c *Client) ClearFaults(ctx context.Context) error {
	return c.to.Delete(ctx, "/faults")
}

// Restart makes the plugin close its socket, serve anew and register again.
func (c *Client) Restart(ctx context.Context) error {
	return c.to.Post(ctx, "/restart", nil)
}

// Crash ends the plugin at once; its sockets stay.
func (c *Client) Crash(ctx context.Context) error {
	return c.to.Post(ctx, "/crash", nil)
}
