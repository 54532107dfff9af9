package playground

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/cmd/numalet-lab/control"
	"github.com/numalet/numalet/cmd/numalet-lab/logind"
)

// OrdersSocket is the name of the socket for orders, in the playground's directory.
const OrdersSocket = "ctl.sock"

// usualUse is how much of a simulated machine's memory is in use without an order.
const usualUse = 0.4

// orders have things happen to the node: memory runs short, the machine shuts down.
type orders struct {
	listener net.Listener
	bus      *logind.Bus

	mu sync.Mutex // guards used
	// used is the share of the memory that the node is to find in use; 0: what there is.
	used, usual float64
}

// MemoryOrder says how much of the memory is in use; 0 ends the order.
type MemoryOrder struct {
	Used float64 `json:"used"`
}

// ShutdownOrder has the machine go down, or no longer.
type ShutdownOrder struct {
	Cancel bool `json:"cancel,omitempty"`
}

// takeOrders listens for orders, and has the agent find what they say. With Once there are none.
func (p *Playground) takeOrders(cfg *config.Config) (*orders, error) {
	o := &orders{}
	if p.opts.Runtime != Containerd {
		o.usual = usualUse
	}
	cfg.Played = o.play
	if p.opts.Once {
		return o, nil
	}
	var err error
	if o.bus, err = logind.Listen(filepath.Join(p.dir, "bus")); err != nil {
		return nil, err
	}
	p.stops = append(p.stops, o.bus.Close)
	o.bus.Delay(time.Hour, nil) // as long as any grace period
	// The agent follows this logind, and not the machine's.
	if err := os.Setenv("DBUS_SYSTEM_BUS_ADDRESS", o.bus.Address()); err != nil {
		return nil, err
	}
	o.listener, err = net.Listen("unix", filepath.Join(p.dir, OrdersSocket))
	return o, err
}

// run takes orders until ctx ends.
func (o *orders) run(ctx context.Context) error {
	if o.listener == nil {
		return nil
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /memory", control.Order(o.memory))
	mux.HandleFunc("POST /shutdown", control.Order(o.shutdown))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	if err := server.Serve(o.listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (o *orders) memory(order MemoryOrder) error {
	if order.Used < 0 || order.Used > 1 {
		return fmt.Errorf("memory in use is a share from 0 to 1, not %v", order.Used)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.used = order.Used
	return nil
}

func (o *orders) shutdown(order ShutdownOrder) error {
	o.bus.Prepare(!order.Cancel)
	return nil
}

// play has the node find as much of its memory in use as is ordered.
func (o *orders) play(n *statsapi.NodeStats) {
	o.mu.Lock()
	share := cmp.Or(o.used, o.usual)
	o.mu.Unlock()
	if share == 0 || n.Memory == nil || n.Memory.AvailableBytes == nil || n.Memory.WorkingSetBytes == nil {
		return
	}
	all := *n.Memory.AvailableBytes + *n.Memory.WorkingSetBytes
	used := uint64(share * float64(all))
	memory := *n.Memory
	memory.WorkingSetBytes, memory.AvailableBytes = new(used), new(all-used)
	n.Memory = &memory
}

// Client gives orders to a playground.
type Client struct{ *control.Client }

// Find returns a client of the playground in the directory, or of the only one there is if dir is empty.
func Find(dir string) (Client, error) {
	found := []string{filepath.Join(dir, OrdersSocket)}
	if dir == "" {
		var err error
		if found, err = filepath.Glob(filepath.Join(os.TempDir(), "numalet-*", OrdersSocket)); err != nil {
			return Client{}, err
		}
	}
	switch len(found) {
	case 0:
		return Client{}, fmt.Errorf("no playground runs in %s: start one with numalet playground", os.TempDir())
	case 1:
		return Client{control.NewClient(found[0])}, nil
	}
	var dirs []string
	for _, socket := range found {
		dirs = append(dirs, filepath.Dir(socket))
	}
	return Client{}, fmt.Errorf("there are several playgrounds: name one of them with --dir: %s",
		strings.Join(dirs, " "))
}

// Order gives an order. It returns an error if no playground takes it.
func (c Client) Order(ctx context.Context, route string, order any) error {
	err := c.Post(ctx, route, order)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("that playground does not run any more: %w", err)
	}
	return err
}

// ParseShare reads a share such as 95%.
func ParseShare(text string) (float64, error) {
	percent, is := strings.CutSuffix(text, "%")
	share, err := strconv.ParseFloat(percent, 64)
	if !is || err != nil || !(share > 0 && share <= 100) { // NaN is neither
		return 0, fmt.Errorf("%q is no share of the memory: say 95%%, or usual", text)
	}
	return share / 100, nil
}
