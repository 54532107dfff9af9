package dra

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/internal/metric"
)

// instruments holds the kubelet's metrics of calls to drivers, under its names.
type instruments struct {
	metric.Set
	took *metrics.HistogramVec
}

func newInstruments() *instruments {
	i := &instruments{}
	i.took = i.Histograms("dra_grpc_operations_duration_seconds",
		"Duration in seconds of the DRA gRPC operations",
		metrics.ExponentialBucketsRange(.1, 40, 15),
		"driver_name", "method_name", "grpc_status_code")
	return i
}

// of returns the interceptor that observes the calls to a driver.
func (i *instruments) of(driver string) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn,
		call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		began := time.Now()
		err := call(ctx, method, req, reply, conn, opts...)
		i.took.WithLabelValues(driver, method, status.Code(err).String()).
			Observe(time.Since(began).Seconds())
		return err
	}
}
