package dracheck

import (
	"context"
	"os"
	"path/filepath"

	"google.golang.org/grpc"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/numalet/numalet/deviceplugin/socket"
)

// noPods is the podresources service of a node without pods and device plugins.
type noPods struct {
	podresources.UnimplementedPodResourcesListerServer
}

// List implements podresources.PodResourcesListerServer.
func (noPods) List(context.Context, *podresources.ListPodResourcesRequest) (
	*podresources.ListPodResourcesResponse, error) {
	return &podresources.ListPodResourcesResponse{}, nil
}

// GetAllocatableResources implements podresources.PodResourcesListerServer.
func (noPods) GetAllocatableResources(context.Context, *podresources.AllocatableResourcesRequest) (
	*podresources.AllocatableResourcesResponse, error) {
	return &podresources.AllocatableResourcesResponse{}, nil
}

// ServeNoPods serves the podresources service of a node without pods below its root directory, where
// a driver may ask which devices others have. stop ends that.
func ServeNoPods(root string) (stop func(), err error) {
	dir := filepath.Join(root, "pod-resources")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	listener, err := socket.Listen(filepath.Join(dir, "kubelet.sock"))
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(server, noPods{})
	go func() { _ = server.Serve(listener) }() // until Stop
	return server.Stop, nil
}
