package csi

import (
	"context"
	"errors"
	"strconv"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/internal/metric"
)

// rpc makes calls over a connection.
type rpc func(ctx context.Context, client csipb.NodeClient) error

// call makes calls to a driver within one deadline. It waits for no other call.
func (d *Drivers) call(ctx context.Context, driver string, do rpc) error {
	if one := d.registered(driver); one != nil {
		return d.callAt(ctx, one.peer, do)
	}
	return notRegistered{driver}
}

// caller makes calls to sockets within deadlines, and measures them.
type caller struct {
	deadlines Deadlines
	metrics   *instruments
}

func (c caller) callAt(ctx context.Context, p *peer, do rpc) error {
	ctx, cancel := context.WithTimeout(ctx, c.deadlines.Call)
	defer cancel()
	conn, err := p.enter(c)
	if err != nil {
		return err
	}
	defer conn.Leave()
	err = do(ctx, csipb.NewNodeClient(conn))
	if code := status.Code(err); code == codes.Unavailable || code == codes.DeadlineExceeded {
		p.drop(conn)
	}
	return err
}

// nodeInfo asks a driver what it calls the node.
func (c caller) nodeInfo(ctx context.Context, p *peer) (Node, error) {
	out := Node{Driver: p.driver}
	err := c.callAt(ctx, p, func(ctx context.Context, n csipb.NodeClient) error {
		said, err := n.NodeGetInfo(ctx, &csipb.NodeGetInfoRequest{})
		if err != nil {
			return err
		}
		out.NodeID, out.MaxVolumes = said.GetNodeId(), said.GetMaxVolumesPerNode()
		out.Topology = said.GetAccessibleTopology().GetSegments()
		return nil
	})
	if err != nil {
		return out, err
	}
	return out, out.check()
}

// Capabilities lists what a driver's node service can do.
type Capabilities map[csipb.NodeServiceCapability_RPC_Type]bool

// asking returns calls that first ask for what the driver can do. Each operation asks anew, as a
// driver may be updated behind its socket.
func asking(do func(ctx context.Context, client csipb.NodeClient, can Capabilities) error) rpc {
	return func(ctx context.Context, client csipb.NodeClient) error {
		said, err := client.NodeGetCapabilities(ctx, &csipb.NodeGetCapabilitiesRequest{})
		if err != nil {
			return err
		}
		can := Capabilities{}
		for _, one := range said.GetCapabilities() {
			if one.GetRpc() != nil {
				can[one.GetRpc().GetType()] = true
			}
		}
		return do(ctx, client, can)
	}
}

// isFinal reports whether a call that failed is over: after any other error the driver may still be
// at work, and what was asked of it has to be undone.
func isFinal(err error) bool {
	said, is := status.FromError(err)
	if !is {
		return false
	}
	switch said.Code() {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted,
		codes.Aborted:
		return false
	default:
		return true
	}
}

// Answered reports whether an error is a driver's answer, or says what is wrong with one; else the
// driver could not be asked, or may still be at work.
func Answered(err error) bool {
	_, called := status.FromError(err)
	return isFinal(err) || !called && !errors.Is(err, ErrNotRegistered)
}

// instruments has the kubelet's metric of calls to drivers.
type instruments struct {
	metric.Set
	took    *metrics.HistogramVec
	storage *metrics.GaugeVec
}

func newInstruments() *instruments {
	i := &instruments{}
	i.took = i.Histograms("csi_operations_seconds",
		"Container Storage Interface operation duration with gRPC error code status total",
		[]float64{.1, .25, .5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600},
		"driver_name", "method_name", "grpc_status_code", "migrated")
	i.storage = i.Gauges("csi_node_storage_health_status",
		"CSI node storage backend health conditions currently reported (1 = present).",
		"driver_name", "status", "reason")
	return i
}

// migratedKey is the key of a context's value that is true in operations on volumes of in-tree
// types.
type migratedKey struct{}

// migrated marks calls for volumes of in-tree types.
func (v Volume) migrated(ctx context.Context) context.Context {
	return context.WithValue(ctx, migratedKey{}, v.Migrated)
}

// of returns the interceptor that observes the calls to a driver.
func (i *instruments) of(driver string) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn,
		call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		began := time.Now()
		err := call(ctx, method, req, reply, conn, opts...)
		migrated, _ := ctx.Value(migratedKey{}).(bool)
		i.took.WithLabelValues(driver, method, status.Code(err).String(),
			strconv.FormatBool(migrated)).Observe(time.Since(began).Seconds())
		return err
	}
}
