package sim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/numalet/numalet/cmd/numalet-lab/control"
	"github.com/numalet/numalet/internal/await"
)

// Health is an order to set the health of devices.
type Health struct {
	IDs     []string `json:"ids"`
	Healthy bool     `json:"healthy"`
	Reason  string   `json:"reason,omitempty"` // why not
}

// Devices is an order to add and to remove devices.
type Devices struct {
	Add    []Device `json:"add,omitempty"`
	Remove []string `json:"remove,omitempty"`
}

// serveControl answers orders until ctx is done.
func (p *Plugin) serveControl(ctx context.Context, listener net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /state", func(w http.ResponseWriter, _ *http.Request) {
		control.Answer(w, p.state.tell())
	})
	mux.HandleFunc("POST /health", control.Order(p.setHealth))
	mux.HandleFunc("POST /devices", control.Order(p.setDevices))
	mux.HandleFunc("POST /fault", control.Order(p.setFault))
	mux.HandleFunc("DELETE /faults", control.Do(p.clearFaults))
	mux.HandleFunc("POST /restart", p.begin(errRestart))
	mux.HandleFunc("POST /crash", p.begin(ErrCrashed))

	server := &http.Server{
		Handler:     mux,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	stopped := make(chan error, 1)
	defer context.AfterFunc(ctx, func() {
		stopped <- server.Shutdown(context.WithoutCancel(ctx))
	})()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve control socket: %w", err)
	}
	return <-stopped
}

// begin returns a handler that ends the session; it answers once the session takes the order.
func (p *Plugin) begin(why error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !await.Send(r.Context(), p.orders, why) {
			http.Error(w, "the plugin is stopping", http.StatusServiceUnavailable)
		}
	}
}

func (p *Plugin) setHealth(o Health) error {
	err := p.state.change(func(devices []Device) ([]Device, error) {
		for _, id := range o.IDs {
			i := slices.IndexFunc(devices, func(d Device) bool { return d.ID == id })
			if i < 0 {
				return nil, fmt.Errorf("there is no device %q", id)
			}
			devices[i].Healthy, devices[i].Reason = o.Healthy, o.Reason
		}
		return devices, nil
	})
	if err == nil {
		p.log.Printf("healthy=%t: %s", o.Healthy, strings.Join(o.IDs, ","))
	}
	return err
}

func (p *Plugin) setDevices(o Devices) error {
	err := p.state.change(func(devices []Device) ([]Device, error) {
		for _, id := range o.Remove {
			before := len(devices)
			devices = slices.DeleteFunc(devices, func(d Device) bool { return d.ID == id })
			if len(devices) == before {
				return nil, fmt.Errorf("there is no device %q", id)
			}
		}
		for _, add := range o.Add {
			if slices.ContainsFunc(devices, func(d Device) bool { return d.ID == add.ID }) {
				return nil, fmt.Errorf("device %q is there already", add.ID)
			}
			devices = append(devices, add)
		}
		return devices, nil
	})
	if err == nil {
		p.log.Printf("%d devices added, %d removed", len(o.Add), len(o.Remove))
	}
	return err
}

func (p *Plugin) clearFaults() {
	p.state.clearFaults()
	p.log.Print("all faults cleared")
}

func (p *Plugin) setFault(f Fault) error {
	if err := p.state.setFault(f); err != nil {
		return err
	}
	p.log.Printf("%s misbehaves from now on: delay=%s hang=%t code=%q lie=%q count=%d",
		f.RPC, f.Delay.Duration, f.Hang, f.Code, f.Lie, f.Count)
	return nil
}
